//! Addresses of this host itself, of its link, and of what clouds have there: who names such a
//! registry has this host ask what it alone may reach.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::origin::authority;

/// Whether an address is of a link, or one at which clouds tell their machines who they are: never
/// one of a server.
#[must_use]
pub fn is_no_servers(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let clouds = [[100, 100, 100, 200], [168, 63, 129, 16]];
            v4.is_link_local() || clouds.contains(&v4.octets())
        }
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local() || v6.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]
        }
    }
}

/// Whether an address means, on any host, that host itself or its link.
#[must_use]
pub fn means_this_host(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let special = match address {
        IpAddr::V4(v4) => {
            v4.is_link_local() || v4.is_broadcast() || v4.octets().first() == Some(&0)
        }
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    special || address.is_loopback() || address.is_unspecified() || address.is_multicast()
}

fn is_near(address: IpAddr) -> bool {
    is_no_servers(address) || means_this_host(address)
}

/// Which registries at addresses of this host and its link are spoken to.
#[derive(Clone, Debug, Default)]
pub enum Near {
    /// All: whoever names them may ask there anyway.
    #[default]
    All,
    /// Those (`host[:port]`).
    Named(BTreeSet<String>),
}

impl Near {
    /// Whether that place is asked whatever its address is.
    pub(crate) fn trusts(&self, url: &Url) -> bool {
        match self {
            Self::All => true,
            Self::Named(named) => named.contains(&authority(url)),
        }
    }

    /// The address that a URL itself says, where it is not gone to.
    pub(crate) fn refused(&self, url: &Url) -> Option<NearAddress> {
        if self.trusts(url) {
            return None;
        }
        let host = url.host_str()?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let address = match bare {
            "localhost" => IpAddr::from([127, 0, 0, 1]),
            bare => bare.parse().ok()?,
        };
        is_near(address).then_some(NearAddress { address })
    }
}

/// An address where no registry is asked that only a job names.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{address} is an address of this host or of its link")]
pub(crate) struct NearAddress {
    pub(crate) address: IpAddr,
}

/// Looks names up as the host does, and gives none of its own addresses, nor of its link.
pub(crate) struct Elsewhere;

impl Resolve for Elsewhere {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            match found.iter().find(|at| is_near(at.ip())) {
                Some(at) => Err(NearAddress { address: at.ip() }.into()),
                None => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}

/// The near address among an error's causes.
pub(crate) fn cause(error: &(dyn std::error::Error + 'static)) -> Option<NearAddress> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(near) = error.downcast_ref::<NearAddress>() {
            return Some(*near);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_host_of_links_and_of_clouds_metadata_are_near() {
        for near in [
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "fe80::1",
            "100.100.100.200",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_near(near.parse().unwrap()), "{near}");
        }
        for far in ["10.0.0.1", "192.168.1.1", "192.0.2.7", "2001:db8::1"] {
            assert!(!is_near(far.parse().unwrap()), "{far}");
        }
    }

    #[test]
    fn what_a_url_says_is_looked_at_in_every_spelling_and_by_its_port() {
        let near = Near::Named(BTreeSet::from([
            "127.0.0.1:5000".into(),
            "localhost".into(),
        ]));
        let refused = |url: &str| near.refused(&Url::parse(url).unwrap()).is_some();
        for not in [
            "http://127.0.0.1:5001/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://localhost:5000/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]:5000/",
            "https://169.254.169.254/",
            "http://0/",
        ] {
            assert!(refused(not), "{not}");
        }
        for fine in [
            "http://127.0.0.1:5000/",
            "http://localhost/",
            "https://registry.example.com/",
            "https://10.0.0.1/",
        ] {
            assert!(!refused(fine), "{fine}");
        }
        assert!(
            Near::All
                .refused(&Url::parse("http://127.0.0.1/").unwrap())
                .is_none()
        );
    }

    #[tokio::test]
    async fn a_name_of_this_host_is_given_no_address() {
        let found = Elsewhere.resolve("localhost".parse().unwrap()).await;
        let error = found.err().unwrap();
        let near = cause(&*error).unwrap();
        assert!(near.address.is_loopback(), "{near}");
    }
}
