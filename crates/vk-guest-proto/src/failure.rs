use crate::limits::MAX_TEXT;
use crate::macros::{choice, record};
use crate::wire::{Own, Text};

choice! {
    /// What kind of failure it was, for who must decide on it. A code that is not known reads as
    /// `Internal`.
    #[derive(Copy, Hash)]
    pub enum FailureCode else Internal {
        /// The agent's own fault, or one without a code here.
        0 = Internal,
        /// The request contradicts itself or cannot be meant.
        1 = Invalid,
        /// No such file, stream, disk or program.
        2 = NotFound,
        /// The kernel says no.
        3 = Denied,
        /// No space left on the job's disk, or no inodes.
        4 = NoSpace,
        /// Something is over a bound; the message says which.
        5 = TooLarge,
        /// No such user or group in the image.
        6 = UnknownUser,
        /// The program is there and cannot be executed.
        7 = NotExecutable,
        /// This agent or this kernel cannot do it.
        8 = Unsupported,
        /// A path leads out of the root it must stay in.
        9 = Escapes,
        /// An input or output error.
        10 = Io,
        /// The other side's frames are out of order or unreadable.
        11 = Protocol,
        /// An archive that cannot be read.
        12 = BadArchive,
    }
}

record! {
    /// Why something was not done.
    pub struct Failure {
        /// Its kind.
        pub code: FailureCode as Own,
        /// What was tried, on what, and why it failed. No variable's value is ever in it.
        pub message: String as Text<MAX_TEXT>,
    }
}

impl Failure {
    /// A failure; a message over [`MAX_TEXT`] is cut.
    #[must_use]
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        let mut keep = message.len().min(MAX_TEXT);
        while !message.is_char_boundary(keep) {
            keep -= 1;
        }
        message.truncate(keep);
        Self { code, message }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_at_a_character() {
        let long = format!("{}ü", "x".repeat(MAX_TEXT - 1));
        let failure = Failure::new(FailureCode::Io, long);
        assert_eq!(failure.message.len(), MAX_TEXT - 1);
    }
}
