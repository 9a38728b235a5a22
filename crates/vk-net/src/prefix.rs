use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// An IPv4 address and how many of its leading bits matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Prefix {
    address: Ipv4Addr,
    length: u8,
}

impl Prefix {
    /// The network of `address` with `length` leading bits; `None` for more than 32.
    #[must_use]
    pub fn new(address: Ipv4Addr, length: u8) -> Option<Self> {
        let mask = mask(length)?;
        Some(Self {
            address: Ipv4Addr::from_bits(address.to_bits() & mask),
            length,
        })
    }

    /// A single address.
    #[must_use]
    pub fn of(address: Ipv4Addr) -> Self {
        Self {
            address,
            length: 32,
        }
    }

    /// Whether `other` lies within this one.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        let mask = mask(self.length).unwrap_or(u32::MAX);
        self.length <= other.length && other.address.to_bits() & mask == self.address.to_bits()
    }

    /// Whether they share an address.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other) || other.contains(self)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

fn mask(length: u8) -> Option<u32> {
    let hidden = 32_u32.checked_sub(u32::from(length))?;
    Some(u32::MAX.checked_shl(hidden).unwrap_or(0))
}

/// The same addresses in the fewest prefixes of those given, in order: none lies within another.
#[must_use]
pub fn merged(mut prefixes: Vec<Prefix>) -> Vec<Prefix> {
    prefixes.sort_unstable();
    let mut kept: Vec<Prefix> = Vec::with_capacity(prefixes.len());
    for prefix in prefixes {
        // A wider one that begins at the same address sorts first.
        if !kept.last().is_some_and(|last| last.contains(prefix)) {
            kept.push(prefix);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
    }

    #[test]
    fn bits_beyond_the_length_do_not_matter() {
        assert_eq!(prefix("10.1.2.3/8").to_string(), "10.0.0.0/8");
        assert_eq!(prefix("10.1.2.3/0").to_string(), "0.0.0.0/0");
        assert_eq!(prefix("10.1.2.3/32").to_string(), "10.1.2.3/32");
        assert_eq!(Prefix::new(Ipv4Addr::LOCALHOST, 33), None);
    }

    proptest! {
        #[test]
        fn merging_keeps_exactly_the_addresses(
            given in prop::collection::vec((0_u32..64, 26_u8..=32), 0..12),
        ) {
            let given: Vec<_> = given
                .into_iter()
                .map(|(bits, length)| Prefix::new(Ipv4Addr::from_bits(bits), length).unwrap())
                .collect();
            let kept = merged(given.clone());
            for bits in 0..64 {
                let one = Prefix::of(Ipv4Addr::from_bits(bits));
                let in_given = given.iter().any(|of| of.contains(one));
                let times = kept.iter().filter(|of| of.contains(one)).count();
                prop_assert_eq!(times, usize::from(in_given));
            }
        }
    }
}
