//! What a registry asks for with 401.

/// A `WWW-Authenticate` header we can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// Name and password with each request.
    Basic,
    /// A token from elsewhere.
    Bearer {
        realm: String,
        service: Option<String>,
    },
}

/// Bytes of a header that is read at all.
const HEADER_MAX: usize = 4096;

impl Challenge {
    /// The best of several headers: a token before a password.
    pub(crate) fn choose<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut basic = None;
        for header in headers.take(8) {
            match Self::parse(header) {
                Some(bearer @ Self::Bearer { .. }) => return Some(bearer),
                Some(Self::Basic) => basic = Some(Self::Basic),
                None => {}
            }
        }
        basic
    }

    fn parse(header: &str) -> Option<Self> {
        if header.len() > HEADER_MAX {
            return None;
        }
        let header = header.trim();
        let (scheme, parameters) = header.split_once(' ').unwrap_or((header, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service) = (None, None);
        for (name, value) in Parameters(parameters) {
            if name.eq_ignore_ascii_case("realm") {
                realm = Some(value);
            } else if name.eq_ignore_ascii_case("service") {
                service = Some(value);
            }
        }
        Some(Self::Bearer {
            realm: realm?,
            service,
        })
    }
}

/// `name=value` or `name="value"`, separated by commas.
struct Parameters<'a>(&'a str);

impl Iterator for Parameters<'_> {
    type Item = (String, String);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.0.trim_start_matches([' ', ',', '\t']);
        let (name, rest) = text.split_once('=')?;
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (value, rest) = rest.split_at(end);
                (value.trim().to_owned(), rest)
            }
        };
        self.0 = rest;
        Some((name.trim().to_owned(), value))
    }
}

/// The value up to its closing quote, and what follows it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(chars.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>) -> Challenge {
        Challenge::Bearer {
            realm: realm.into(),
            service: service.map(Into::into),
        }
    }

    #[test]
    fn challenges_of_real_registries_are_read() {
        let one = |header: &str| Challenge::choose([header].into_iter());
        assert_eq!(
            one(
                r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/debian:pull""#
            ),
            Some(bearer(
                "https://auth.docker.io/token",
                Some("registry.docker.io")
            ))
        );
        assert_eq!(
            one(r#"bearer service=x, realm="https://h/a,b\"c""#),
            Some(bearer("https://h/a,b\"c", Some("x")))
        );
        assert_eq!(one(r#"Basic realm="Registry""#), Some(Challenge::Basic));
        assert_eq!(one("Basic"), Some(Challenge::Basic));
        let both = ["Basic realm=x", "Bearer realm=https://t"];
        assert_eq!(
            Challenge::choose(both.into_iter()),
            Some(bearer("https://t", None))
        );
    }

    #[test]
    fn odd_challenges_are_none() {
        let long = format!("Bearer realm=\"{}\"", "x".repeat(5000));
        for header in [
            "",
            "Negotiate",
            "Bearer",
            "Bearer realm",
            r#"Bearer realm="x"#,
            "Bearer service=x",
            &long,
        ] {
            assert_eq!(Challenge::choose([header].into_iter()), None, "{header}");
        }
    }
}
