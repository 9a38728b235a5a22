use std::fmt;
use std::ops::Deref;

/// Bytes that may hold a secret (a script, a variable's value, a file): `Debug` shows how many
/// there are, never which.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Opaque(Vec<u8>);

impl Opaque {
    /// The bytes themselves.
    #[must_use]
    pub fn into_inner(self) -> Vec<u8> {
        self.0
    }
}

impl From<Vec<u8>> for Opaque {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for Opaque {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl Deref for Opaque {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes]", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printing_shows_the_length_only() {
        assert_eq!(format!("{:?}", Opaque::from(&b"hunter2"[..])), "[7 bytes]");
    }
}
