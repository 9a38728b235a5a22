//! What an image runs on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An operating system and an architecture, `linux/amd64` or `linux/arm64/v8`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// As Go names it.
    #[serde(default)]
    pub os: String,
    /// As Go names it.
    #[serde(default)]
    pub architecture: String,
    /// A finer choice within the architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// A text that is no platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a platform of the form os/architecture[/variant], such as linux/amd64")]
pub struct PlatformError;

impl Default for Platform {
    fn default() -> Self {
        Self {
            os: "linux".into(),
            architecture: "amd64".into(),
            variant: None,
        }
    }
}

impl Platform {
    /// Whether an image for `self` may run where `wanted` is asked for. A variant counts only where
    /// one is asked for and one is said.
    pub fn serves(&self, wanted: &Self) -> bool {
        let variants = self.variant.as_deref().zip(wanted.variant.as_deref());
        self.os == wanted.os
            && self.architecture == wanted.architecture
            && variants.is_none_or(|(ours, theirs)| ours == theirs)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant
            .iter()
            .try_for_each(|variant| write!(f, "/{variant}"))
    }
}

impl FromStr for Platform {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Self, PlatformError> {
        let is_word = |part: &&str| {
            let plain =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
            !part.is_empty() && part.len() <= 64 && part.bytes().all(plain)
        };
        let mut parts = text.split('/');
        let mut next = || parts.next().filter(is_word).map(str::to_ascii_lowercase);
        let (os, architecture) = next().zip(next()).ok_or(PlatformError)?;
        let variant = match parts.next() {
            None => None,
            Some(part) if is_word(&part) => Some(part.to_ascii_lowercase()),
            Some(_) => return Err(PlatformError),
        };
        match parts.next() {
            Some(_) => Err(PlatformError),
            None => Ok(Self {
                os,
                architecture,
                variant,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_read_and_compared() {
        let arm: Platform = "linux/arm64/v8".parse().unwrap();
        assert_eq!(arm.to_string(), "linux/arm64/v8");
        assert!(arm.serves(&"linux/arm64".parse().unwrap()));
        assert!(!arm.serves(&"linux/arm64/v7".parse().unwrap()));
        assert!(!arm.serves(&Platform::default()));
        for bad in [
            "linux",
            "linux/",
            "/amd64",
            "linux/amd64/v1/x",
            "linux/a b",
            "",
        ] {
            assert_eq!(bad.parse::<Platform>(), Err(PlatformError), "{bad}");
        }
    }
}
