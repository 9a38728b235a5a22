//! Text that must not be shown.

use std::fmt;

use serde::{Deserialize, Deserializer, Serializer};
use zeroize::Zeroizing;

/// A token, password or variable's value. It has no `Display`, its `Debug` hides it, it does not
/// serialize unless a field says so with `serialize_with = "secret::expose"`, and it is wiped when
/// dropped (CRED-14).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text over.
    #[must_use]
    pub fn new(text: String) -> Secret {
        Secret(Zeroizing::new(text))
    }

    /// The text itself: for the wire, a header or a file that must hold it, never for a log.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is no text at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret::new(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret::new(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Secret::new)
    }
}

/// Serializes the text of a secret: named by each field whose wire form holds it.
///
/// # Errors
/// Those of the serializer.
pub fn expose<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(secret.expose())
}
