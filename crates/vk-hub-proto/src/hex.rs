//! Strict lowercase hexadecimal: one spelling a value.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Writes `bytes` as lowercase digits.
///
/// # Errors
/// Those of the formatter.
pub fn write(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// `bytes` as lowercase digits.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            for half in [byte >> 4, byte & 15] {
                text.push(
                    DIGITS
                        .get(usize::from(half))
                        .copied()
                        .map_or('0', char::from),
                );
            }
            text
        })
}

/// Exactly `N` bytes from exactly `2 * N` lowercase digits; `None` for anything else.
#[must_use]
pub fn read<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// `N` bytes that travel as `2 * N` lowercase digits: keys, signatures, nonces, digests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex<const N: usize>(pub [u8; N]);

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.0, f)
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.0, f)
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        let digits = N * 2;
        read(&text).map(Hex).ok_or_else(|| {
            serde::de::Error::custom(format_args!(
                "expected {digits} lowercase hexadecimal digits"
            ))
        })
    }
}
