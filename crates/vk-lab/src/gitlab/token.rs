//! Tokens as GitLab makes them: a prefix that says the kind, and randomness.

use std::fmt;

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// A secret string. It is never shown by `Debug`, and there is no `Display`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes a secret as it is.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that must write it to its owner.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `other` is this secret; the time taken says nothing of where they differ.
    pub fn matches(&self, other: &str) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.0.as_bytes(), other.as_bytes())
            .is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// A new token: `prefix` and 20 random characters.
///
/// # Panics
///
/// Never in practice: only when the system has no randomness at all, where nothing else works.
pub fn fresh(prefix: &str) -> Secret {
    Secret(format!("{prefix}{}", random_text()))
}

/// A new token of `length` bytes, at least as long as `fresh` makes them and at most 8 KiB: what
/// is beyond that is padding, as in a JWT.
pub fn padded(prefix: &str, length: usize) -> Secret {
    let mut token = fresh(prefix);
    while token.0.len() < length.min(8_192) {
        token.0.push_str(&random_text());
    }
    let least = prefix.len() + 20;
    token.0.truncate(length.clamp(least, 8_192));
    token
}

/// 20 characters of randomness, also the form of a runner's queue value.
pub fn random_text() -> String {
    let mut bytes = [0_u8; 15];
    #[allow(
        clippy::expect_used,
        reason = "a system without randomness cannot serve at all"
    )]
    rand::fill(&mut bytes).expect("the system gives randomness");
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown_and_no_two_are_the_same() {
        let one = fresh("glrt-");
        assert!(one.expose().starts_with("glrt-") && one.expose().len() == 25);
        assert_ne!(one, fresh("glrt-"));
        assert!(!format!("{one:?}").contains(one.expose()));
        assert!(one.matches(one.expose()) && !one.matches("glrt-"));
        for (asked, made) in [(0, 26), (26, 26), (27, 27), (1_500, 1_500), (90_000, 8_192)] {
            assert_eq!(padded("glcbt-", asked).expose().len(), made);
        }
    }
}
