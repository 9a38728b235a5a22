//! The machine's one interface, as the host says on the command line.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use vk_guest_proto::Failure;

use super::modules;
use crate::context::OrFail;
use crate::sys::interface_up;

/// What the kernel calls a machine's first network device.
const INTERFACE: &str = "eth0";
/// The modules that only such a machine needs.
const MODULES: &str = "network.list";

/// `vk.net=ADDRESS/LENGTH,GATEWAY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    address: Ipv4Addr,
    length: u8,
    /// The way out, and the resolver.
    gateway: Ipv4Addr,
}

impl Network {
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let (own, gateway) = std::str::from_utf8(value).ok()?.split_once(',')?;
        let (address, length) = own.split_once('/')?;
        let length = length.parse().ok().filter(|length| *length <= 32)?;
        Some(Self {
            address: address.parse().ok()?,
            length,
            gateway: gateway.parse().ok()?,
        })
    }

    fn mask(self) -> Ipv4Addr {
        let hidden = 32_u32.saturating_sub(u32::from(self.length));
        Ipv4Addr::from_bits(u32::MAX.checked_shl(hidden).unwrap_or(0))
    }

    /// Brings the interface up; a job that was to have a network does not go on without.
    pub(super) fn bring_up(self, bundle: &Path) -> Result<(), Failure> {
        modules::load_all(bundle, MODULES);
        // A machine whose host says nothing of IPv6 has none.
        for scope in ["all", "default"] {
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
        }
        let _ = fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "0");
        interface_up(INTERFACE, self.address, self.mask(), self.gateway)
            .or_fail(|| format!("bring the interface {INTERFACE} up"))
    }

    /// The text of the job's `/etc/resolv.conf`.
    pub(super) fn resolv_conf(self) -> String {
        format!("nameserver {}\n", self.gateway)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_length_and_gateway_are_read_and_nothing_else() {
        let network = Network::parse(b"198.18.254.2/24,198.18.254.1").unwrap();
        assert_eq!(network.mask(), Ipv4Addr::new(255, 255, 255, 0));
        assert_eq!(network.resolv_conf(), "nameserver 198.18.254.1\n");
        let all = Network::parse(b"10.0.0.2/0,10.0.0.1").unwrap();
        assert_eq!(all.mask(), Ipv4Addr::UNSPECIFIED);
        for wrong in [
            "",
            "10.0.0.2,10.0.0.1",
            "10.0.0.2/33,10.0.0.1",
            "10.0.0.2/24,x",
            "::1/64,::2",
        ] {
            assert_eq!(Network::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
