//! Cache keys made fit to be paths (SPEC-03, PORT-34; behaviour of gitlab-runner's cachekey): the
//! daemon does it to a job's own keys, the node to the one that it reads from a variable.

/// What became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sanitized {
    /// It is fit as it is.
    Same,
    /// It was changed.
    Changed(String),
    /// Nothing of it is left.
    Nothing,
}

/// Makes a key fit: percent-encoded slashes and dots and backslashes count as what they stand for,
/// the path is cleaned inside a root of its own, and white space at the end of segments that would
/// be last goes. An empty key stays empty.
#[must_use]
pub fn sanitize(key: &str) -> Sanitized {
    if key.is_empty() {
        return Sanitized::Same;
    }
    let mut segments = Vec::new();
    let decoded = decode(key);
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    while let Some(last) = segments.pop() {
        match last.trim_end() {
            "" | "." => {}
            // White space had hidden what it is.
            ".." => {
                segments.pop();
            }
            trimmed => {
                segments.push(trimmed);
                break;
            }
        }
    }
    if segments.is_empty() {
        return Sanitized::Nothing;
    }
    let clean = segments.join("/");
    if clean == key {
        Sanitized::Same
    } else {
        Sanitized::Changed(clean)
    }
}

/// One pass from the left: what it makes is not decoded again.
fn decode(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    let mut rest = key;
    while let Some(c) = rest.chars().next() {
        let code = rest.get(..3).unwrap_or_default();
        let (made, used) = match code {
            "%2f" | "%2F" => ('/', 3),
            "%2e" | "%2E" => ('.', 3),
            _ if c == '\\' => ('/', 1),
            _ => (c, c.len_utf8()),
        };
        out.push(made);
        rest = rest.get(used..).unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn made(key: &str) -> Option<String> {
        match sanitize(key) {
            Sanitized::Same => Some(key.to_owned()),
            Sanitized::Changed(clean) => Some(clean),
            Sanitized::Nothing => None,
        }
    }

    /// PORT-34, SPEC-03
    #[test]
    fn keys_are_cleaned_as_upstream_cleans_them() {
        let rows = [
            ("", Some("")),
            ("fallback_key", Some("fallback_key")),
            ("some-job/some-ref", Some("some-job/some-ref")),
            ("some%2fuser%2Fkey", Some("some/user/key")),
            ("hello.%2e..there  ", Some("hello....there")),
            (r"looks\like\a\win\path", Some("looks/like/a/win/path")),
            (
                "this/../key/will/be\\sanitized\\  ",
                Some("key/will/be/sanitized"),
            ),
            (
                "0_project/foo/../dependencies-x",
                Some("0_project/dependencies-x"),
            ),
            ("a/b/.. ", Some("a")),
            ("a/. ", Some("a")),
            (".. ", None),
            ("/", None),
            ("..", None),
            (".", None),
            (" /  ", None),
            ("../a", Some("a")),
            ("a/b/c/../../d/e", Some("a/d/e")),
            ("%2e%2e/%2f", None),
            (" a ", Some(" a")),
            ("...", Some("...")),
            (".../foo/bar", Some(".../foo/bar")),
            ("%5Ca", Some("%5Ca")),
            ("%252f", Some("%252f")),
        ];
        for (key, expected) in rows {
            assert_eq!(made(key).as_deref(), expected, "{key:?}");
        }
    }

    proptest! {
        #[test]
        fn a_clean_key_stays_below_its_root_and_is_clean(key in r"[a-c/\\. %2fFeE]{0,30}") {
            if let Some(clean) = made(&key) {
                prop_assert!(!clean.starts_with('/'));
                prop_assert!(clean.split('/').all(|part| part != ".."));
            }
        }
    }
}
