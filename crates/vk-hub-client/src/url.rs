//! Where the hub is.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A hub's URL: `https://host[:port]` and nothing behind it; `http` for loopback alone, the test
/// bench's exception to TLS 1.3 (ENR-17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubUrl {
    tls: bool,
    host: String,
    port: u16,
}

/// A URL that is no hub's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is no hub's URL: {why}; it must look like https://hub.example.com:8443")]
pub struct HubUrlError {
    /// The URL as it was given.
    pub url: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// The port where the URL names none: the hub's default listener.
const PORT: u16 = 8443;

impl HubUrl {
    /// Whether connections are TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.tls
    }

    /// Name or address, an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `host:port` as a `Host` header and a socket want it.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for HubUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl FromStr for HubUrl {
    type Err = HubUrlError;

    fn from_str(text: &str) -> Result<HubUrl, HubUrlError> {
        let refuse = |why| HubUrlError {
            url: shown(text),
            why,
        };
        let uri: hyper::Uri = text.parse().map_err(|_| refuse("it does not parse"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(refuse("the scheme must be https")),
        };
        let authority = uri.authority().ok_or_else(|| refuse("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(refuse("it must hold no credentials"));
        }
        if uri.query().is_some() || !matches!(uri.path(), "" | "/") {
            return Err(refuse("nothing may follow host and port"));
        }
        // The parser drops it.
        if text.contains('#') {
            return Err(refuse("nothing may follow host and port"));
        }
        let port = match authority.port() {
            None => PORT,
            Some(port) => match port.as_u16() {
                0 => return Err(refuse("there is no port 0")),
                port => port,
            },
        };
        // A port that is no number is none to the parser.
        let bare = authority
            .as_str()
            .rsplit_once(']')
            .map_or(authority.as_str(), |(_, rest)| rest);
        if bare.contains(':') && authority.port().is_none() {
            return Err(refuse("its port is no number from 1 to 65535"));
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        if host.is_empty() {
            return Err(refuse("it names no host"));
        }
        if !tls && !is_loopback(&host) {
            return Err(refuse("http is for loopback addresses alone"));
        }
        Ok(HubUrl { tls, host, port })
    }
}

/// The URL fit for a message: without what stands before an `@`, which may be a password.
fn shown(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, rest)) => format!("…@{rest}"),
        None => text.to_owned(),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ENR-17
    #[test]
    fn a_hub_url_is_scheme_host_and_port() {
        let good = [
            ("https://hub.example.com", "https://hub.example.com:8443"),
            (
                "https://hub.example.com:443/",
                "https://hub.example.com:443",
            ),
            ("https://[2001:db8::1]:9", "https://[2001:db8::1]:9"),
            ("http://127.0.0.1:8443", "http://127.0.0.1:8443"),
            ("http://[::1]:8443", "http://[::1]:8443"),
            ("http://localhost:8443", "http://localhost:8443"),
        ];
        for (text, spelled) in good {
            assert_eq!(text.parse::<HubUrl>().unwrap().to_string(), spelled);
        }
        let bad = [
            "hub.example.com",
            "ftp://hub.example.com",
            "http://hub.example.com",
            "http://127.0.0.1.example.com",
            "https://hub.example.com/fleet",
            "https://hub.example.com?x=1",
            "https://user:pass@hub.example.com",
            "https://hub.example.com#x",
            "https://hub.example.com:0",
            "https://hub.example.com:65536",
            "https://hub.example.com:",
            "https://[::1]:99999",
            "https://",
            "",
        ];
        for text in bad {
            let error = text.parse::<HubUrl>().unwrap_err().to_string();
            assert!(!error.contains("pass"), "{error}");
        }
    }
}
