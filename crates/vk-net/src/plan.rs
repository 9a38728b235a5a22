use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::prefix::Prefix;

/// Where a job's addresses may lie: first the range set apart for benchmarks, which no network in
/// use has (RFC 2544), then corners of the private ranges.
const CANDIDATES: [[u8; 2]; 5] = [[198, 18], [198, 19], [10, 213], [172, 29], [192, 168]];

/// The bridge's network has 256 addresses.
pub(crate) const INSIDE_LENGTH: u8 = 24;
/// The way out has four.
pub(crate) const OUTSIDE_LENGTH: u8 = 30;

/// The addresses in a job's namespace. Every job may have the same: no two see each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The bridge: the guest's gateway and its resolver.
    pub bridge: Ipv4Addr,
    /// The guest.
    pub guest: Ipv4Addr,
    /// How many leading bits the bridge's network has.
    pub prefix_len: u8,
    /// The namespace's end of the way out.
    pub(crate) uplink: Ipv4Addr,
    /// The other end: pasta's, and nobody's address.
    pub(crate) beyond: Ipv4Addr,
}

impl Plan {
    /// The first candidates that overlap nothing that the host has or is directly connected to;
    /// `None` where all do.
    #[must_use]
    pub fn choose(taken: &[Prefix]) -> Option<Self> {
        CANDIDATES.iter().map(|of| Self::at(*of)).find(|plan| {
            let networks = [plan.inside(), plan.outside()];
            let free = |network: &Prefix| !taken.iter().any(|of| of.overlaps(*network));
            networks.iter().all(free)
        })
    }

    fn at([a, b]: [u8; 2]) -> Self {
        Self {
            bridge: Ipv4Addr::new(a, b, 254, 1),
            guest: Ipv4Addr::new(a, b, 254, 2),
            prefix_len: INSIDE_LENGTH,
            beyond: Ipv4Addr::new(a, b, 255, 1),
            uplink: Ipv4Addr::new(a, b, 255, 2),
        }
    }

    /// The bridge's network.
    pub(crate) fn inside(&self) -> Prefix {
        Prefix::new(self.bridge, self.prefix_len).unwrap_or(Prefix::of(self.bridge))
    }

    /// The way out's.
    pub(crate) fn outside(&self) -> Prefix {
        Prefix::new(self.uplink, OUTSIDE_LENGTH).unwrap_or(Prefix::of(self.uplink))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Prefix {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_network_of_the_hosts_is_left_alone() {
        let plan = Plan::choose(&[network("192.0.2.0/24")]).unwrap();
        assert_eq!(plan.guest, Ipv4Addr::new(198, 18, 254, 2));
        assert_eq!(plan.inside().to_string(), "198.18.254.0/24");
        assert_eq!(plan.outside().to_string(), "198.18.255.0/30");
        let plan = Plan::choose(&[network("198.18.255.1/32"), network("198.19.0.0/16")]).unwrap();
        assert_eq!(plan.bridge, Ipv4Addr::new(10, 213, 254, 1));
        assert_eq!(Plan::choose(&[network("0.0.0.0/0")]), None);
    }
}
