//! Where requests may go, and what they may carry there.

use std::collections::BTreeSet;
use std::net::IpAddr;

use reqwest::Url;

/// Registries that may be spoken to in plain HTTP, beside loopback.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    pub(crate) insecure: BTreeSet<String>,
}

/// Docker Hub's registry has another name than its images.
const HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

impl Origins {
    /// The root of a registry's API.
    pub(crate) fn base(&self, registry: &str) -> Option<Url> {
        let host = if registry == HUB.0 { HUB.1 } else { registry };
        let url = Url::parse(&format!("https://{host}/v2/")).ok()?;
        if is_loopback(&url) || self.insecure.contains(registry) {
            return Url::parse(&format!("http://{host}/v2/")).ok();
        }
        Some(url)
    }

    /// Whether a request may go to `to` at all, coming from `from`; says why not.
    pub(crate) fn may_go(&self, from: &Url, to: &Url) -> Result<(), &'static str> {
        match to.scheme() {
            "https" if is_loopback(to) && !is_loopback(from) => {
                Err("a way from another host to this host's loopback is not followed")
            }
            "https" => Ok(()),
            "http" if from.scheme() == "https" => Err("a way from https to http is not followed"),
            "http" if same_origin(from, to) => Ok(()),
            "http" if is_loopback(from) && is_loopback(to) => Ok(()),
            "http" if self.insecure.contains(&authority(to)) => Ok(()),
            "http" => {
                Err("plain http is only for loopback and for registries that a setting names")
            }
            _ => Err("only https and http are spoken"),
        }
    }
}

/// How a registry (`host[:port]`) is spoken to, `insecure` naming those in plain HTTP: scheme, host and
/// port, nothing after them. None for a text that is no host.
pub fn registry_url(registry: &str, insecure: &[String]) -> Option<String> {
    let insecure = insecure.iter().cloned().collect();
    let base = Origins { insecure }.base(registry)?;
    Some(base.origin().ascii_serialization())
}

/// Whether a secret may be sent there: over TLS or to this host itself.
pub(crate) fn may_carry_secrets(to: &Url) -> bool {
    to.scheme() == "https" || is_loopback(to)
}

/// Scheme, host and port are equal.
pub(crate) fn same_origin(one: &Url, other: &Url) -> bool {
    one.origin() == other.origin()
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let address = host.trim_start_matches('[').trim_end_matches(']');
            address
                .parse::<IpAddr>()
                .is_ok_and(|address| match address {
                    IpAddr::V4(address) => address.is_loopback(),
                    IpAddr::V6(address) => {
                        address.is_loopback()
                            || address.to_ipv4_mapped().is_some_and(|it| it.is_loopback())
                    }
                })
        }
        None => false,
    }
}

/// Host and, where it is not the scheme's own, port.
pub(crate) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn plain_http_is_for_loopback_and_for_named_registries() {
        let origins = Origins {
            insecure: BTreeSet::from(["10.0.0.1:5000".into()]),
        };
        for (registry, base) in [
            ("docker.io", "https://registry-1.docker.io/v2/"),
            ("example.com:5000", "https://example.com:5000/v2/"),
            ("localhost:5000", "http://localhost:5000/v2/"),
            ("127.9.9.9", "http://127.9.9.9/v2/"),
            ("[::1]:5000", "http://[::1]:5000/v2/"),
            ("10.0.0.1:5000", "http://10.0.0.1:5000/v2/"),
            ("10.0.0.2:5000", "https://10.0.0.2:5000/v2/"),
            ("localhost.example.com", "https://localhost.example.com/v2/"),
        ] {
            assert_eq!(origins.base(registry).unwrap().as_str(), base);
        }
    }

    #[test]
    fn no_way_leads_from_tls_to_plain_or_from_abroad_to_loopback() {
        let origins = Origins::default();
        let go = |from, to| origins.may_go(&url(from), &url(to)).is_ok();
        assert!(go("https://a.example/", "https://cdn.example/"));
        assert!(!go("https://a.example/", "http://a.example/"));
        assert!(!go("https://a.example/", "https://127.0.0.1/"));
        assert!(!go("https://a.example/", "http://localhost/"));
        assert!(!go("https://a.example/", "file:///etc/passwd"));
        assert!(go("http://127.0.0.1:1/", "http://127.0.0.1:2/"));
        assert!(!go("http://127.0.0.1:1/", "http://10.0.0.1/"));
        assert!(go("http://127.0.0.1:1/", "https://a.example/"));
    }

    #[test]
    fn secrets_travel_over_tls_or_stay_on_the_host() {
        assert!(may_carry_secrets(&url("https://a.example/")));
        assert!(may_carry_secrets(&url("http://[::1]:5000/")));
        assert!(!may_carry_secrets(&url("http://a.example/")));
    }
}
