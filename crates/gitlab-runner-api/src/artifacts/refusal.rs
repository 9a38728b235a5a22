//! What a refusal's body says: GitLab's JSON, or an object store's XML.

use reqwest::header::CONTENT_TYPE;
use reqwest::{Response, StatusCode};

/// Bytes read of a refusal.
const BYTES_MAX: usize = 64 << 10;
/// Characters told of a store's code and of its message.
const CHARS_MAX: usize = 512;

/// The words of a refusal; empty where it has none, or is none.
pub(super) async fn refusal(mut response: Response) -> String {
    if response.status() == StatusCode::CREATED {
        return String::new();
    }
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_xml = matches!(kind, "application/xml" | "text/xml");
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > BYTES_MAX {
            break;
        }
    }
    if is_xml {
        return of_store(&String::from_utf8_lossy(&body)).unwrap_or_default();
    }
    crate::client::message(&body)
}

/// `<Error><Code>…</Code><Message>…</Message></Error>`, as S3 and those like it answer.
fn of_store(xml: &str) -> Option<String> {
    let error = element(xml, "Error")?;
    let code = plain(element(error, "Code")?);
    Some(match element(error, "Message").map(plain) {
        Some(message) if !message.is_empty() => format!("{code}: {message}"),
        _ => code,
    })
}

/// What stands between an element's marks.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (content, _) = rest.split_once(&format!("</{name}>"))?;
    Some(content)
}

/// Text without marks and control characters.
fn plain(text: &str) -> String {
    let text = text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&");
    let shown = text.chars().filter(|c| !c.is_control());
    shown.take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stores_words_are_found_and_bounded() {
        let s3 = "<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>Request has \
                  &lt;expired&gt;\u{1b}[2J &amp; more</Message><HostId>x</HostId></Error>";
        let said = "AccessDenied: Request has <expired>[2J & more";
        assert_eq!(of_store(s3).as_deref(), Some(said));
        let only = "<Error><Code>NoSuchKey</Code></Error>";
        assert_eq!(of_store(only).as_deref(), Some("NoSuchKey"));
        for none in [
            "",
            "This is not XML",
            "<Test>Hello</Test>",
            "<Error>",
            "<Error><Code>x",
        ] {
            assert_eq!(of_store(none), None, "{none}");
        }
        let long = format!("<Error><Code>{}</Code></Error>", "x".repeat(5000));
        assert_eq!(of_store(&long).unwrap().len(), CHARS_MAX);
    }
}
