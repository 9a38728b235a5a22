//! Where a redirect leads.

use reqwest::Url;
use reqwest::header::{HeaderMap, LOCATION};

/// The URL that a redirect names.
///
/// # Errors
/// In words: none is named, it is no URL, or it leads from https to http (ART-09).
pub(super) fn location(from: &Url, headers: &HeaderMap) -> Result<Url, String> {
    let text = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let text = text.ok_or("the redirect names no location")?;
    let to = from
        .join(text)
        .map_err(|error| format!("the redirect leads nowhere: {error}"))?;
    match (from.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") => Ok(to),
        ("https", "http") => Err(format!(
            "the redirect leads from https to http ({}), where all could be read on the way",
            to.host_str().unwrap_or_default()
        )),
        (_, other) => Err(format!("the redirect leads to {other}:")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(from: &str, to: Option<&'static str>) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        if let Some(to) = to {
            headers.insert(LOCATION, to.parse().unwrap());
        }
        location(&from.parse().unwrap(), &headers).map(|url| url.to_string())
    }

    /// ART-09
    #[test]
    fn a_redirect_from_https_to_http_is_refused() {
        let error = led("https://a/x", Some("http://a/x")).unwrap_err();
        assert!(error.contains("from https to http"), "{error}");
        assert_eq!(
            led("https://a/x", Some("https://b/y")).unwrap(),
            "https://b/y"
        );
        assert_eq!(led("http://a/x", Some("http://b/y")).unwrap(), "http://b/y");
        assert_eq!(
            led("http://a/x", Some("https://b/y")).unwrap(),
            "https://b/y"
        );
        assert_eq!(
            led("https://a/x/y", Some("/z?q=1")).unwrap(),
            "https://a/z?q=1"
        );
        assert!(led("https://a/x", Some("ftp://a/x")).is_err());
        assert!(led("https://a/x", None).is_err());
    }
}
