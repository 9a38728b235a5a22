use crate::archive::Note;
use crate::decoder::Frame;
use crate::exec::ExecEnd;
use crate::failure::Failure;
use crate::limits::MAX_CHUNK;
use crate::macros::{choice, record};
use crate::opaque::Opaque;
use crate::wire::{Bytes, Flag, Int, Own};

choice! {
    /// Which output a chunk belongs to.
    #[derive(Copy, Hash)]
    pub enum Channel {
        /// A tar's or a file's bytes.
        0 = Content,
        /// A command's stdout.
        1 = Stdout,
        /// A command's stderr.
        2 = Stderr,
    }
}

choice! {
    /// A frame of any other stream, from host to agent: parts of one request, then data, then
    /// `End`.
    pub enum StreamToAgent {
        /// A part of the stream's [`crate::Request`].
        0 = Request {
            /// Whether it is the last.
            last: bool as Flag,
            /// The part.
            part: Opaque as Bytes<MAX_CHUNK>,
        },
        /// A chunk of stdin, of a tar or of a file.
        1 = Data {
            /// The bytes; an empty chunk is allowed and means nothing.
            bytes: Opaque as Bytes<MAX_CHUNK>,
        },
        /// No more data comes. The connection stays open for the agent's frames.
        2 = End,
    }
}

record! {
    /// The end of an archive or a file that went through whole.
    pub struct TransferEnd {
        /// Entries written, or 1 for a file.
        pub entries: u64 as Int,
        /// Bytes of their content.
        pub bytes: u64 as Int,
    }
}

choice! {
    /// A frame of any other stream, from agent to host: one of the last three ends it.
    pub enum StreamToHost {
        /// The command runs.
        0 = Started {
            /// The process' number in the guest.
            pid: u32 as Int,
        },
        /// A chunk of output.
        1 = Data {
            /// Whose.
            channel: Channel as Own,
            /// The bytes.
            bytes: Opaque as Bytes<MAX_CHUNK>,
        },
        /// Something to be known that does not end the stream.
        2 = Note {
            /// What.
            note: Note as Own,
        },
        /// The command ended, and all its output has been sent.
        3 = Exited {
            /// How.
            end: ExecEnd as Own,
        },
        /// The transfer is through, whole.
        4 = Done {
            /// What went through.
            end: TransferEnd as Own,
        },
        /// It could not be done, or not to its end.
        5 = Failed {
            /// Why.
            failure: Failure as Own,
        },
    }
}

impl Frame for StreamToAgent {
    const NAME: &'static str = "StreamToAgent";
    fn is_final(&self) -> bool {
        matches!(self, Self::End)
    }
}

impl Frame for StreamToHost {
    const NAME: &'static str = "StreamToHost";
    fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Exited { .. } | Self::Done { .. } | Self::Failed { .. }
        )
    }
}
