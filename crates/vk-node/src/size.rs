//! Sizes as people write them: `512M`, `4G`.

use std::str::FromStr;

use serde::Deserialize;

/// A number of bytes, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Size(u64);

/// A text that is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no size: write a whole number of at least 1 with K, M, G or T, such as \"4G\"")]
pub struct NoSize(String);

impl Size {
    /// This many bytes; none of 0.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Option<Size> {
        match bytes {
            0 => None,
            bytes => Some(Size(bytes)),
        }
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// In whole MiB, what is left over cut off.
    #[must_use]
    pub const fn mib(self) -> u64 {
        self.0 >> 20
    }
}

impl FromStr for Size {
    type Err = NoSize;

    fn from_str(text: &str) -> Result<Size, NoSize> {
        let refuse = || NoSize(text.chars().take(64).collect());
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text.get(digits.len()..).unwrap_or_default();
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "ki" | "kib" => 10,
            "m" | "mi" | "mib" => 20,
            "g" | "gi" | "gib" => 30,
            "t" | "ti" | "tib" => 40,
            _ => return Err(refuse()),
        };
        let number: u64 = digits.parse().map_err(|_| refuse())?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(refuse)?;
        Size::from_bytes(bytes).ok_or_else(refuse)
    }
}

impl TryFrom<toml::Value> for Size {
    type Error = NoSize;

    fn try_from(value: toml::Value) -> Result<Size, NoSize> {
        match value {
            toml::Value::String(text) => text.parse(),
            other => other.to_string().parse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        let mib = |text: &str| text.parse::<Size>().map(Size::mib).ok();
        assert_eq!(mib("4G"), Some(4096));
        assert_eq!(mib("512MiB"), Some(512));
        assert_eq!(mib("1t"), Some(1 << 20));
        assert_eq!("7".parse::<Size>().unwrap().bytes(), 7);
        for bad in [
            "",
            "0",
            "0G",
            "-1",
            "4X",
            "1.5G",
            "G",
            "99999999999999999999",
            "17179869184G",
        ] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
