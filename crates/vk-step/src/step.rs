/// What a core answers to one input.
///
/// The records come first: an effect is released only once every record of this step and of all
/// earlier steps is durable. A step without records waits for the earlier ones all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a step that is dropped loses what the core decided"]
pub struct Step<R, E> {
    /// What to make durable, in order.
    pub records: Vec<R>,
    /// What to do afterwards, in order.
    pub effects: Vec<E>,
}

impl<R, E> Step<R, E> {
    /// A step that keeps nothing and does nothing.
    pub const fn none() -> Self {
        Step {
            records: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// A step with neither records nor effects?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.effects.is_empty()
    }

    /// Adds a record behind those already there.
    pub fn record(&mut self, record: R) {
        self.records.push(record);
    }

    /// Adds an effect behind those already there.
    pub fn effect(&mut self, effect: E) {
        self.effects.push(effect);
    }

    /// Appends another step of the same machine: its records and effects come after these.
    pub fn append(&mut self, mut later: Self) {
        self.records.append(&mut later.records);
        self.effects.append(&mut later.effects);
    }
}

impl<R, E> Default for Step<R, E> {
    fn default() -> Self {
        Step::none()
    }
}
