//! Output bytes on the wire.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limit::CHUNK_BYTES;

/// At most [`CHUNK_BYTES`] bytes of a job's output, base64 on the wire (DISP-19). `Debug` shows the
/// length alone: output is the user's.
#[derive(Clone, PartialEq, Eq)]
pub struct Chunk(Vec<u8>);

/// More bytes than one message may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} output bytes in one message, at most {CHUNK_BYTES} are allowed")]
pub struct ChunkTooLarge {
    /// How many there were.
    pub len: usize,
}

impl Chunk {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, taken out.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl TryFrom<Vec<u8>> for Chunk {
    type Error = ChunkTooLarge;

    fn try_from(bytes: Vec<u8>) -> Result<Chunk, ChunkTooLarge> {
        if bytes.len() > CHUNK_BYTES {
            return Err(ChunkTooLarge { len: bytes.len() });
        }
        Ok(Chunk(bytes))
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Chunk {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Chunk {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        let bytes = STANDARD
            .decode(text.as_bytes())
            .map_err(|why| D::Error::custom(format_args!("output is not base64: {why}")))?;
        Chunk::try_from(bytes).map_err(D::Error::custom)
    }
}
