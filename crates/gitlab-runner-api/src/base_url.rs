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
        let shown = text
            .rsplit_once('@')
            .map_or(text, |(_, rest)| rest)
            .to_owned();
        let refuse = |why: &str| BaseUrlError {
            url: shown.clone(),
            why: why.to_owned(),
        };
        let trimmed = text.trim_end_matches('/');
        let trimmed = trimmed.strip_suffix("/ci").unwrap_or(trimmed);
        let api = Url::parse(&format!("{trimmed}/api/v4/"))
            .map_err(|error| refuse(&error.to_string()))?;
        if !matches!(api.scheme(), "http" | "https") {
            return Err(refuse("only http and https are spoken"));
        }
        if !api.username().is_empty() || api.password().is_some() {
            return Err(refuse("it must hold no credentials"));
        }
        if api.query().is_some() || api.fragment().is_some() {
            return Err(refuse("it must have no query and no fragment"));
        }
        Ok(BaseUrl { api })
    }
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
        for bad in [
            "",
            "gitlab.example.com",
            "ftp://x",
            "https://u:secret@x",
            "https://x?a=b",
        ] {
            let error = bad.parse::<BaseUrl>().unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
