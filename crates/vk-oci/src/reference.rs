//! What images are called: `[registry/]repository[:tag][@digest]`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// The registry of a name without one.
const DEFAULT_REGISTRY: &str = "docker.io";
/// Where that registry's images without a directory are.
const DEFAULT_DIRECTORY: &str = "library";
const DEFAULT_TAG: &str = "latest";
/// Bytes of a whole reference.
const REFERENCE_MAX: usize = 1024;
/// Bytes of registry and repository, as in the Distribution specification.
const NAME_MAX: usize = 255;

/// An image's name in full. Written short or long, the same image has the same reference.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// Why a text is no reference. Says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad image name {name:?}: {what}")]
pub struct ReferenceError {
    /// The text, which is escaped where it is shown; of one that is too long its length alone.
    pub name: String,
    /// What is wrong.
    pub what: &'static str,
}

impl Reference {
    /// Host and, where one is given, port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path within the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag; `None` only where a digest stands alone.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, which decides over the tag.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The same repository at this digest.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        Self {
            digest: Some(digest),
            ..self.clone()
        }
    }

    /// Registry and repository without tag or digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// As people write it: without the default registry, directory and tag.
    pub fn familiar(&self) -> String {
        let long = self.to_string();
        match long.strip_prefix("docker.io/") {
            Some(rest) => rest.strip_prefix("library/").unwrap_or(rest).to_owned(),
            None => long,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.to_string()
    }
}

impl TryFrom<String> for Reference {
    type Error = ReferenceError;

    fn try_from(text: String) -> Result<Self, ReferenceError> {
        text.parse()
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        parse(text).map_err(|what| {
            // Whole or not at all: half a secret that somebody put there would be found by no one.
            let name = match text.len() {
                len if len > REFERENCE_MAX => format!("({len} bytes)"),
                _ => text.to_owned(),
            };
            ReferenceError { name, what }
        })
    }
}

fn parse(text: &str) -> Result<Reference, &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.len() > REFERENCE_MAX {
        return Err("it is longer than 1024 bytes");
    }
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => {
            let digest = digest
                .parse()
                .map_err(|_| "after @ stands no sha256:<64 hexadecimal digits>")?;
            (rest, Some(digest))
        }
        None => (text, None),
    };
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err("a tag is at most 128 of A-Z a-z 0-9 _ . - and begins with none of . -");
    }
    let (registry, repository) = split_name(name)?;
    if registry.len() + repository.len() + 1 > NAME_MAX {
        return Err("registry and repository are longer than 255 bytes");
    }
    let tag = match (tag, &digest) {
        (Some(tag), _) => Some(tag.to_owned()),
        (None, Some(_)) => None,
        (None, None) => Some(DEFAULT_TAG.to_owned()),
    };
    Ok(Reference {
        registry,
        repository,
        tag,
        digest,
    })
}

/// The first part is a registry when it cannot be a repository's: it has a dot, a port, capitals,
/// or is `localhost`.
fn split_name(name: &str) -> Result<(String, String), &'static str> {
    let (registry, path) = match name.split_once('/') {
        Some((first, path)) if is_registry_like(first) => (first, path),
        _ => (DEFAULT_REGISTRY, name),
    };
    if !is_registry(registry) {
        return Err("the part before the first / is no host[:port]");
    }
    let registry = match registry {
        "index.docker.io" => DEFAULT_REGISTRY.to_owned(),
        other => other.to_ascii_lowercase(),
    };
    if !path.split('/').all(is_component) {
        return Err("a repository is made of a-z 0-9, separated by one . or _ or __ or any - or /");
    }
    if registry != DEFAULT_REGISTRY || path.contains('/') {
        return Ok((registry, path.to_owned()));
    }
    if path.len() == 64 && path.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("64 hexadecimal digits are an image's ID, not a name");
    }
    Ok((registry, format!("{DEFAULT_DIRECTORY}/{path}")))
}

fn is_registry_like(part: &str) -> bool {
    part == "localhost"
        || part.contains(['.', ':'])
        || part.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, "")) => return address.parse::<std::net::Ipv6Addr>().is_ok(),
            Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => {
                return port.strip_prefix(':').is_some_and(is_port);
            }
            _ => return false,
        },
        None => match registry.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (registry, None),
        },
    };
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty()
            && label.bytes().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_component(component: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    if !bytes.first().copied().is_some_and(is_plain) || !bytes.last().copied().is_some_and(is_plain)
    {
        return false;
    }
    let separators = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let mut separators = separators.filter(|text| !text.is_empty());
    separators.all(|text| matches!(text, "." | "_" | "__") || text.bytes().all(|byte| byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut bytes = tag.bytes();
    tag.len() <= 128
        && bytes.next().is_some_and(is_word)
        && bytes.all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(text: &str) -> String {
        text.parse::<Reference>()
            .unwrap_or_else(|error| panic!("{error}"))
            .to_string()
    }

    #[test]
    fn short_names_mean_docker_hub() {
        for (short, full) in [
            ("debian", "docker.io/library/debian:latest"),
            ("debian:12", "docker.io/library/debian:12"),
            ("grafana/loki", "docker.io/grafana/loki:latest"),
            ("docker.io/debian", "docker.io/library/debian:latest"),
            (
                "index.docker.io/library/debian",
                "docker.io/library/debian:latest",
            ),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000/a:1", "localhost:5000/a:1"),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b:latest"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
            (
                "Registry.Example.com/a_b/c__d/e-f.g",
                "registry.example.com/a_b/c__d/e-f.g:latest",
            ),
            ("a/b/c/d:Tag_1.2-x", "docker.io/a/b/c/d:Tag_1.2-x"),
        ] {
            assert_eq!(long(short), full);
            assert_eq!(long(full), full, "a full name stays");
        }
    }

    #[test]
    fn a_digest_stands_alone_or_beside_a_tag() {
        let digest = Digest::of(b"");
        let alone: Reference = format!("debian@{digest}").parse().unwrap();
        assert_eq!((alone.tag(), alone.digest()), (None, Some(digest)));
        let both: Reference = format!("debian:12@{digest}").parse().unwrap();
        assert_eq!((both.tag(), both.digest()), (Some("12"), Some(digest)));
        assert_eq!(both.familiar(), format!("debian:12@{digest}"));
    }

    /// FAIL-33
    #[test]
    fn a_bad_name_says_what_is_bad() {
        for (bad, what) in [
            ("", "empty"),
            ("Debian", "a-z 0-9"),
            ("debian:", "tag"),
            ("debian:-x", "tag"),
            ("a//b", "a-z"),
            ("a/", "a-z"),
            ("-a", "a-z"),
            ("a..b", "a-z"),
            ("a___b", "a-z"),
            ("a b", "a-z"),
            ("../etc", "no host"),
            ("a/../b", "a-z"),
            ("debian@sha256:12", "hexadecimal"),
            ("host:99999/a", "no host"),
            ("http://host/a", "no host"),
            ("ho st.com/a", "no host"),
            ("exa$mple.com/a", "no host"),
            ("$CI_REGISTRY_IMAGE", "a-z"),
            (&"f".repeat(64), "ID"),
            (&format!("{}/a", "a.".repeat(200) + "a"), "255"),
            (&"a".repeat(2000), "1024"),
        ] {
            let error = bad.parse::<Reference>().unwrap_err();
            assert!(error.what.contains(what), "{bad}: {error}");
        }
        let long = "a".repeat(2000).parse::<Reference>().unwrap_err();
        assert_eq!(long.name, "(2000 bytes)");
        let shown = "\x1b[31m".parse::<Reference>().unwrap_err().to_string();
        assert!(!shown.contains('\x1b'), "{shown}");
    }
}
