//! The Ed25519 key a relay or node is known by.

use std::path::Path;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use vk_hub_proto::hex::Hex;

use crate::file::{self, FileError};

/// A key pair. Its secret half leaves it for its own file alone.
pub struct Key(Ed25519KeyPair);

/// A key that could not be made, kept or read.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file holds something else.
    #[error("{path} holds no Ed25519 key in PKCS#8; restore it, or join again with --replace")]
    NoKey {
        /// Which file.
        path: String,
    },
    /// The system gave no randomness.
    #[error("no key could be generated: the system gave no randomness")]
    NoRandomness,
}

impl Key {
    /// A fresh key.
    ///
    /// # Errors
    /// No randomness.
    pub fn generate() -> Result<Key, KeyError> {
        Ed25519KeyPair::generate()
            .map(Key)
            .map_err(|_| KeyError::NoRandomness)
    }

    /// Keeps the key in a file of mode 0600, durably.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        let pkcs8 = self.0.to_pkcs8v1().map_err(|_| KeyError::NoRandomness)?;
        Ok(file::write(path, pkcs8.as_ref())?)
    }

    /// Reads the key; none where there is no file.
    ///
    /// # Errors
    /// The file cannot be read or holds something else.
    pub fn load(path: &Path) -> Result<Option<Key>, KeyError> {
        let Some(bytes) = file::read(path)? else {
            return Ok(None);
        };
        let pair = Ed25519KeyPair::from_pkcs8(&bytes);
        let no_key = |_| KeyError::NoKey {
            path: path.display().to_string(),
        };
        pair.map(|pair| Some(Key(pair))).map_err(no_key)
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> Hex<32> {
        let mut bytes = [0; 32];
        // Ed25519 public keys have 32 bytes.
        for (to, from) in bytes.iter_mut().zip(self.0.public_key().as_ref()) {
            *to = *from;
        }
        Hex(bytes)
    }

    /// Signs a message.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Hex<64> {
        let mut bytes = [0; 64];
        // Ed25519 signatures have 64 bytes.
        for (to, from) in bytes.iter_mut().zip(self.0.sign(message).as_ref()) {
            *to = *from;
        }
        Hex(bytes)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "key {}", self.public())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    /// CRED-03
    #[test]
    fn a_kept_key_signs_as_before_and_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pk8");
        assert!(Key::load(&path).unwrap().is_none());
        let key = Key::generate().unwrap();
        key.save(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let again = Key::load(&path).unwrap().unwrap();
        assert_eq!(again.public(), key.public());
        let public = UnparsedPublicKey::new(&ED25519, key.public().0);
        public
            .verify(b"message", &again.sign(b"message").0)
            .unwrap();
    }

    #[test]
    fn a_file_that_holds_no_key_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pk8");
        std::fs::write(&path, b"not a key").unwrap();
        let error = Key::load(&path).unwrap_err().to_string();
        assert!(
            error.contains("key.pk8") && error.contains("--replace"),
            "{error}"
        );
    }
}
