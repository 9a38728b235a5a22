//! Where GitLab's API is (GL-66).

use std::fmt;
use std::str::FromStr;

use reqwest::Url;

/// The base of all endpoints: the configured URL without trailing slashes and one `/ci`, with
/// `/api/v4/` behind it. A path before that is kept, for installs under one.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl {
    api: Url,
}

/// A URL that is no GitLab's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is no GitLab URL: {why}; it must look like https://gitlab.example.com")]
pub struct BaseUrlError {
    url: String,
    why: String,
}

impl BaseUrl {
    /// An endpoint, given as a path below `/api/v4/`.
    #[must_use]
    pub(crate) fn endpoint(&self, path: &str) -> Option<Url> {
        self.api.join(path).ok()
    }

    /// Whether it is https.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.api.scheme() == "https"
    }

    /// Scheme, host and port.
    #[must_use]
    pub fn origin(&self) -> String {
        self.api.origin().ascii_serialization()
    }
}

impl FromStr for BaseUrl {
    type Err = BaseUrlError;

    fn from_str(text: &str) -> Result<BaseUrl, BaseUrlError> {
        let refuse = |why: &str| BaseUrlError {
            url: shown(text),
            why: why.to_owned(),
        };
        // The parser drops or mends what follows, and what is spoken to would not be what stands there.
        if text.contains(|one: char| one.is_whitespace() || one.is_control()) {
            return Err(refuse("it must hold no blanks"));
        }
        if text.contains('\\') {
            return Err(refuse("it must hold no backslashes"));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(refuse("it has no scheme"));
        };
        if !["http", "https"]
            .iter()
            .any(|one| scheme.eq_ignore_ascii_case(one))
        {
            return Err(refuse("only http and https are spoken"));
        }
        if rest.is_empty() || rest.starts_with(['/', '?', '#', ':']) {
            return Err(refuse("it names no host"));
        }
        let trimmed = text.trim_end_matches('/');
        let trimmed = trimmed.strip_suffix("/ci").unwrap_or(trimmed);
        let api = Url::parse(&format!("{trimmed}/api/v4/"))
            .map_err(|error| refuse(&error.to_string()))?;
        if !api.username().is_empty() || api.password().is_some() || rest.contains('@') {
            return Err(refuse("it must hold no credentials"));
        }
        if api.query().is_some() || api.fragment().is_some() {
            return Err(refuse("it must have no query and no fragment"));
        }
        if api.port() == Some(0) {
            return Err(refuse("there is no port 0"));
        }
        if api
            .path()
            .strip_suffix("/api/v4/")
            .is_some_and(|path| path.ends_with("/api/v4"))
        {
            return Err(refuse("leave /api/v4 away: it is put there"));
        }
        if rest.split('/').any(|part| matches!(part, "." | ".."))
            || rest.contains("%2e")
            || rest.contains("%2E")
        {
            return Err(refuse("its path must not have . or .. in it"));
        }
        Ok(BaseUrl { api })
    }
}

/// The URL as it is told: nothing before an `@`, nor behind a `?` or `#`, where secrets stand.
fn shown(text: &str) -> String {
    let text = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let text = text.get(..end).unwrap_or_default();
    text.chars().take(256).collect()
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.api.as_str())
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.api.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GL-66
    #[test]
    fn endpoints_stand_below_the_configured_url() {
        let rows = [
            (
                "https://gitlab.example.com",
                "https://gitlab.example.com/api/v4/jobs/request",
            ),
            (
                "https://gitlab.example.com///",
                "https://gitlab.example.com/api/v4/jobs/request",
            ),
            (
                "https://gitlab.example.com/ci",
                "https://gitlab.example.com/api/v4/jobs/request",
            ),
            (
                "https://gitlab.example.com/ci/",
                "https://gitlab.example.com/api/v4/jobs/request",
            ),
            (
                "https://example.com/gitlab",
                "https://example.com/gitlab/api/v4/jobs/request",
            ),
            ("http://[::1]:8080", "http://[::1]:8080/api/v4/jobs/request"),
        ];
        for (configured, endpoint) in rows {
            let base: BaseUrl = configured.parse().unwrap();
            assert_eq!(base.endpoint("jobs/request").unwrap().as_str(), endpoint);
        }
        for (bad, why) in [
            ("", "no scheme"),
            ("gitlab.example.com", "no scheme"),
            ("//gitlab.example.com", "no scheme"),
            ("ftp://x", "only http and https"),
            ("file:///etc/passwd", "only http and https"),
            ("https://", "no host"),
            ("https:///x", "no host"),
            ("https://:8443", "no host"),
            ("https://?a=b", "no host"),
            ("https://u:secret@x", "no credentials"),
            ("https://secret@x", "no credentials"),
            ("https://x?private_token=secret", "no query"),
            ("https://x#secret", "no query and no fragment"),
            ("https://x:0", "no port 0"),
            ("https://x:65536", "invalid port"),
            ("https://x:https", "invalid port"),
            ("https://x y", "no blanks"),
            ("https://x\n", "no blanks"),
            ("https://x\t.example.com", "no blanks"),
            ("https:\\\\x", "no backslashes"),
            ("https://x/api/v4", "leave /api/v4 away"),
            ("https://x/gitlab/api/v4/", "leave /api/v4 away"),
            ("https://x/a/../b", ". or .."),
            ("https://x/%2e%2e/b", ". or .."),
            ("https://1.2.3.4.5", "IPv4"),
            ("https://[::1", "IPv6"),
        ] {
            let error = bad.parse::<BaseUrl>().unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
            assert!(error.contains(why), "{bad:?}: {error}, not {why}");
        }
    }
}
