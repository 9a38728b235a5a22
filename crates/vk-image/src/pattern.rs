//! Patterns of image names: `*` within one part of a path, `**` across parts, `?` for one character.

/// Bytes of a pattern that is looked at.
const PATTERN_MAX: usize = 1024;

/// Whether a name fits a pattern, both as they are written.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    if pattern.len() > PATTERN_MAX {
        return false;
    }
    let tokens = tokens(pattern.as_bytes());
    // Which tokens may come next, after each byte of the name.
    let mut reached = vec![false; tokens.len() + 1];
    reached.splice(..1, [true]);
    skip_stars(&tokens, &mut reached);
    for byte in name.bytes() {
        let mut next = vec![false; reached.len()];
        for (at, token) in tokens
            .iter()
            .enumerate()
            .filter(|(at, _)| reached.get(*at) == Some(&true))
        {
            let to = match token {
                Token::Literal(literal) if *literal == byte => at + 1,
                Token::Any if byte != b'/' => at + 1,
                Token::Star if byte != b'/' => at,
                Token::StarStar => at,
                _ => continue,
            };
            if let Some(slot) = next.get_mut(to) {
                *slot = true;
            }
        }
        skip_stars(&tokens, &mut next);
        reached = next;
    }
    reached.last() == Some(&true)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Literal(u8),
    Any,
    Star,
    StarStar,
}

fn tokens(pattern: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    for byte in pattern {
        match (byte, tokens.last()) {
            (b'*', Some(Token::Star | Token::StarStar)) => {
                tokens.pop();
                tokens.push(Token::StarStar);
            }
            (b'*', _) => tokens.push(Token::Star),
            (b'?', _) => tokens.push(Token::Any),
            (literal, _) => tokens.push(Token::Literal(*literal)),
        }
    }
    tokens
}

/// A star may stand for nothing.
fn skip_stars(tokens: &[Token], reached: &mut [bool]) {
    for (at, token) in tokens.iter().enumerate() {
        let star = matches!(token, Token::Star | Token::StarStar);
        if star
            && reached.get(at) == Some(&true)
            && let Some(slot) = reached.get_mut(at + 1)
        {
            *slot = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_within_a_part_and_double_stars_do_not() {
        for (pattern, name, fits) in [
            ("debian", "debian", true),
            ("debian", "debian:12", false),
            ("debian:*", "debian:12", true),
            ("*", "debian:12", true),
            ("*", "a/b", false),
            ("**", "a/b/c:1", true),
            (
                "registry.example.com/**",
                "registry.example.com/a/b:1",
                true,
            ),
            (
                "registry.example.com/*",
                "registry.example.com/a/b:1",
                false,
            ),
            (
                "registry.example.com/**",
                "registry.example.com.evil.net/a",
                false,
            ),
            ("*/*/*:1.?", "h/a/b:1.2", true),
            ("a*b*c", "aXbXXc", true),
            ("a*b*c", "aXbXX", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_longer() {
        assert!(!matches(&"*a".repeat(500), &"a".repeat(255)));
        assert!(!matches(&"*".repeat(2000), "a"));
    }
}
