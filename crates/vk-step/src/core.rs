use crate::{Now, Step, Variant};

/// A state machine without I/O, clocks or randomness.
///
/// The edge that drives it does, in this order: give it an input, append the step's records, sync
/// them (many steps may share one sync), release the step's effects. When [`Core::next_deadline`]
/// comes, the edge gives it [`Core::timeout`]; an early or repeated one is harmless.
pub trait Core: Sized {
    /// Settings fixed for the machine's life, and what the edge knows at start.
    type Config;
    /// What can happen to the machine.
    type Input;
    /// What is kept: plain data, and the only thing [`Core::open`] reads.
    type Record: Clone + Variant;
    /// What the edge is to do.
    type Effect: Variant;

    /// Builds the machine from what was kept, oldest record first, and says what is to be done
    /// about it. A machine that was never started before gets no records.
    ///
    /// # Errors
    /// Records that cannot have come from this machine, in the order given: what is wrong, and
    /// with which.
    fn open(
        config: Self::Config,
        now: Now,
        records: impl IntoIterator<Item = Self::Record>,
    ) -> Result<(Self, Vec<Self::Effect>), OpenError>;

    /// Takes one input.
    fn handle(&mut self, now: Now, input: Self::Input) -> Step<Self::Record, Self::Effect>;

    /// When the machine next wants [`Core::timeout`], if at all.
    fn next_deadline(&self) -> Option<Now>;

    /// The input that says that a deadline has come.
    fn timeout() -> Self::Input;
}

/// Records that do not fit together: the store is damaged, or another program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    /// Position of the record, counted from 0.
    pub at: usize,
    /// The record's variant.
    pub variant: &'static str,
    /// Why it cannot stand there.
    pub why: String,
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "record {} ({}) does not fit those before it: {}",
            self.at, self.variant, self.why
        )
    }
}

impl std::error::Error for OpenError {}
