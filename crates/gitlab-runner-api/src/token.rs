//! What a runner token's text tells.

/// Whether the token is one that GitLab made for a runner created in its interface.
#[must_use]
pub fn is_created_runner_token(token: &str) -> bool {
    token.starts_with("glrt-")
}

/// The token's short form: what names a runner in logs without giving it away.
#[must_use]
pub fn short_token(token: &str) -> &str {
    let token = strip_partition(token);
    let token = token.strip_prefix("glcbt-").unwrap_or(token);
    let token = strip_legacy(token);
    let end = token
        .char_indices()
        .nth(9)
        .map_or(token.len(), |(at, _)| at);
    token.get(..end).unwrap_or(token)
}

/// `glrt-` with or without a type, a bare type, or `glrtr-`.
fn strip_partition(token: &str) -> &str {
    if let Some(rest) = token.strip_prefix("glrt-") {
        return strip_type(rest).unwrap_or(rest);
    }
    strip_type(token)
        .or_else(|| token.strip_prefix("glrtr-"))
        .unwrap_or(token)
}

fn strip_type(token: &str) -> Option<&str> {
    ["t1_", "t2_", "t3_"]
        .into_iter()
        .find_map(|kind| token.strip_prefix(kind))
}

/// `GR` and seven hexadecimal digits: the registration tokens of old.
fn strip_legacy(token: &str) -> &str {
    let Some(rest) = token.strip_prefix("GR") else {
        return token;
    };
    match rest.split_at_checked(7) {
        Some((digits, rest)) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => rest,
        _ => token,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PORT-13
    #[test]
    fn a_created_runners_token_begins_with_glrt() {
        let rows = [
            ("glrt-abc", true),
            ("glrt-", true),
            ("glrt-t1_a1b2c3", true),
            ("", false),
            ("GR1348941xyz", false),
            ("glrtr-abc", false),
            ("GLRT-abc", false),
            ("xglrt-abc", false),
            (" glrt-abc", false),
            ("abc", false),
        ];
        for (token, created) in rows {
            assert_eq!(is_created_runner_token(token), created, "{token:?}");
        }
    }

    #[test]
    fn the_short_form_is_nine_characters_behind_the_prefixes() {
        let rows = [
            ("glrt-t1_abcdefghijkl", "abcdefghi"),
            ("glrt-abcdefghijkl", "abcdefghi"),
            ("t3_abcdefghijkl", "abcdefghi"),
            ("glrtr-abcdefghijkl", "abcdefghi"),
            ("GR1348941abcdefghijkl", "abcdefghi"),
            ("glcbt-64_abcdefghi", "64_abcdef"),
            ("abc", "abc"),
            ("", ""),
        ];
        for (token, short) in rows {
            assert_eq!(short_token(token), short, "{token}");
        }
    }
}
