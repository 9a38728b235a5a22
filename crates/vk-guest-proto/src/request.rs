use crate::archive::{TarIn, TarOut};
use crate::error::{DecodeError, EncodeError};
use crate::exec::Exec;
use crate::file::{FileIn, FileOut};
use crate::limits::{MAX_CHUNK, MAX_REQUEST};
use crate::macros::choice;
use crate::opaque::Opaque;
use crate::opening::Purpose;
use crate::stream::StreamToAgent;
use crate::wire::{Own, Reader, Wire};

choice! {
    /// What a stream is to do. It may be larger than a frame (an environment, a list of patterns),
    /// so it travels in parts.
    pub enum Request {
        /// To run a command.
        1 = Exec {
            /// Which.
            exec: Exec as Own,
        },
        /// To extract a tar.
        2 = TarIn {
            /// Where.
            tar: TarIn as Own,
        },
        /// To make a tar.
        3 = TarOut {
            /// Of what.
            tar: TarOut as Own,
        },
        /// To write a file.
        4 = FileIn {
            /// Which.
            file: FileIn as Own,
        },
        /// To read a file.
        5 = FileOut {
            /// Which.
            file: FileOut as Own,
        },
    }
}

impl Request {
    /// The purpose of a stream for this request.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        match self {
            Request::Exec { .. } => Purpose::Exec,
            Request::TarIn { .. } => Purpose::TarIn,
            Request::TarOut { .. } => Purpose::TarOut,
            Request::FileIn { .. } => Purpose::FileIn,
            Request::FileOut { .. } => Purpose::FileOut,
        }
    }

    /// The frames that carry it, in order; at least one, the last marked so.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] for a string, list or the whole over its bound.
    pub fn to_frames(&self) -> Result<Vec<StreamToAgent>, EncodeError> {
        let mut all = Vec::new();
        self.put(&mut all)?;
        if all.len() > MAX_REQUEST {
            let len = all.len();
            return Err(EncodeError::TooLong {
                what: "Request",
                len,
                max: MAX_REQUEST,
            });
        }
        let count = all.len().div_ceil(MAX_CHUNK);
        let parts = all.chunks(MAX_CHUNK).enumerate();
        Ok(parts
            .map(|(i, part)| StreamToAgent::Request {
                last: i + 1 == count,
                part: Opaque::from(part),
            })
            .collect())
    }
}

/// Puts a request together again from its parts.
#[derive(Debug, Default)]
pub struct Assembly {
    bytes: Vec<u8>,
}

impl Assembly {
    /// An assembly without parts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one part; the request, once `last` has come.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] when the parts pass [`MAX_REQUEST`]; any other when what they make
    /// is no request.
    pub fn push(&mut self, last: bool, part: &[u8]) -> Result<Option<Request>, DecodeError> {
        let len = self.bytes.len() + part.len();
        if len > MAX_REQUEST {
            return Err(DecodeError::TooLong {
                what: "Request",
                len,
                max: MAX_REQUEST,
            });
        }
        self.bytes.extend_from_slice(part);
        if !last {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.bytes);
        let mut from = Reader::new(&bytes);
        let request = Request::get(&mut from)?;
        from.done("Request")?;
        Ok(Some(request))
    }
}
