use thiserror::Error;

/// A frame, an opening or a request that cannot be read.
///
/// Every one of them means that the peer is broken, hostile or gone: the connection is of no more
/// use and is closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A frame's length field says more than [`crate::limits::MAX_FRAME`].
    #[error("a frame says it is {len} bytes long; at most {max} are allowed")]
    FrameTooLong {
        /// What the length field says.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// A frame without even a kind byte.
    #[error("a frame of no bytes; each has at least its kind")]
    EmptyFrame,
    /// A body that ends before its last field.
    #[error("the bytes end {missing} before the end of a value of {what}")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// How many bytes more it needed, at least.
        missing: usize,
    },
    /// A string, list or request over its bound.
    #[error("{what} of {len}; at most {max} are allowed")]
    TooLong {
        /// What was being read.
        what: &'static str,
        /// The length it says.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// A kind, code or flag that this version does not know.
    #[error("{what} {value} is not known to protocol version {version}")]
    Unknown {
        /// What was being read.
        what: &'static str,
        /// What stands there.
        value: u8,
        /// The version spoken here.
        version: u8,
    },
    /// Text that is not UTF-8 where text is due.
    #[error("{what} is not UTF-8")]
    NotUtf8 {
        /// What was being read.
        what: &'static str,
    },
    /// Bytes after the last field.
    #[error("{count} bytes follow the end of a value of {what}")]
    Trailing {
        /// What was read.
        what: &'static str,
        /// How many bytes are left.
        count: usize,
    },
    /// An opening that does not begin with [`crate::MAGIC`].
    #[error("the connection does not begin as an agent's does")]
    NotAnAgent,
    /// A frame after the one that ends the stream.
    #[error("a frame came after the one that ends the stream")]
    AfterEnd,
    /// The connection closed before the frame that ends the stream.
    #[error(
        "the connection closed before the frame that ends the stream ({pending} bytes pending)"
    )]
    EndedEarly {
        /// Bytes of an unfinished frame.
        pending: usize,
    },
}

/// A value that must not be sent, for the peer would refuse it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A string, list, frame or request over its bound.
    #[error("{what} of {len}; at most {max} are allowed")]
    TooLong {
        /// What was being written.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The bound.
        max: usize,
    },
}
