//! Patterns of image names: `*` within one part of a path, `**` across parts, `?` for one character,
//! `[a-z]` and `[!a-z]` for one of some, `{a,b}` for either, `\` before what stands for itself.

/// Bytes of a pattern that is looked at.
const PATTERN_MAX: usize = 1024;
/// Patterns without braces that one may stand for.
const ALTERNATIVES_MAX: usize = 256;

/// Whether a name fits a pattern, both as they are written. One that is broken fits nothing.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    read(pattern).is_some_and(|all| all.iter().any(|tokens| fits(tokens, name)))
}

/// Whether this is a pattern that some name may fit: its brackets and braces are closed, and its braces
/// stand for 256 others at most.
#[must_use]
pub fn is_pattern(pattern: &str) -> bool {
    read(pattern).is_some()
}

fn read(pattern: &str) -> Option<Vec<Vec<Token>>> {
    if pattern.len() > PATTERN_MAX {
        return None;
    }
    let alternatives = alternatives(pattern.as_bytes());
    let read: Option<Vec<_>> = alternatives.iter().map(|one| tokens(one)).collect();
    read.filter(|all| !all.is_empty())
}

fn fits(tokens: &[Token], name: &str) -> bool {
    // Which tokens may come next, after each byte of the name.
    let mut reached = vec![false; tokens.len() + 1];
    reached.splice(..1, [true]);
    skip_stars(tokens, &mut reached);
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
                Token::Class { not, ranges } if byte != b'/' => {
                    let has = ranges
                        .iter()
                        .any(|(low, high)| (low..=high).contains(&&byte));
                    if has == *not {
                        continue;
                    }
                    at + 1
                }
                Token::Star if byte != b'/' => at,
                Token::StarStar => at,
                _ => continue,
            };
            if let Some(slot) = next.get_mut(to) {
                *slot = true;
            }
        }
        skip_stars(tokens, &mut next);
        reached = next;
    }
    reached.last() == Some(&true)
}

/// The patterns without braces that one stands for; none where a brace is open, or of too many.
fn alternatives(pattern: &[u8]) -> Vec<Vec<u8>> {
    let mut done = Vec::new();
    let mut left = vec![pattern.to_vec()];
    while let Some(one) = left.pop() {
        match first_braces(&one) {
            Braces::None => done.push(one),
            Braces::Open => return Vec::new(),
            Braces::Of(before, choices, after) => {
                left.extend(
                    choices
                        .iter()
                        .map(|choice| [before, choice, after].concat()),
                );
            }
        }
        if done.len() + left.len() > ALTERNATIVES_MAX {
            return Vec::new();
        }
    }
    done
}

enum Braces<'a> {
    None,
    Open,
    /// What is before them, their choices, what is behind them.
    Of(&'a [u8], Vec<&'a [u8]>, &'a [u8]),
}

fn first_braces(pattern: &[u8]) -> Braces<'_> {
    let (mut begin, mut depth, mut from) = (0, 0_u32, 0);
    let mut choices = Vec::new();
    let mut bytes = pattern.iter().enumerate();
    let part = |from: usize, to: usize| pattern.get(from..to).unwrap_or_default();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => _ = bytes.next(),
            b'{' => {
                if depth == 0 {
                    (begin, from) = (at, at + 1);
                }
                depth += 1;
            }
            b',' if depth == 1 => {
                choices.push(part(from, at));
                from = at + 1;
            }
            b'}' if depth == 1 => {
                choices.push(part(from, at));
                let after = pattern.get(at + 1..).unwrap_or_default();
                return Braces::Of(part(0, begin), choices, after);
            }
            b'}' if depth > 0 => depth -= 1,
            _ => {}
        }
    }
    if depth > 0 {
        Braces::Open
    } else {
        Braces::None
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(u8),
    Any,
    Star,
    StarStar,
    Class { not: bool, ranges: Vec<(u8, u8)> },
}

/// `None` where a class is open or nothing follows a backslash.
fn tokens(pattern: &[u8]) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut bytes = pattern.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, tokens.last()) {
            (b'*', Some(Token::Star | Token::StarStar)) => {
                tokens.pop();
                tokens.push(Token::StarStar);
            }
            (b'*', _) => tokens.push(Token::Star),
            (b'?', _) => tokens.push(Token::Any),
            (b'[', _) => tokens.push(class(&mut bytes)?),
            (b'\\', _) => tokens.push(Token::Literal(bytes.next()?)),
            (literal, _) => tokens.push(Token::Literal(literal)),
        }
    }
    Some(tokens)
}

/// What follows a `[`, with its end.
fn class(bytes: &mut impl Iterator<Item = u8>) -> Option<Token> {
    let mut next = bytes.next()?;
    let not = matches!(next, b'!' | b'^');
    if not {
        next = bytes.next()?;
    }
    let mut ranges: Vec<(u8, u8)> = Vec::new();
    let mut is_range = false;
    while next != b']' {
        match (next, ranges.last_mut()) {
            (b'-', Some(_)) if !is_range => is_range = true,
            (byte, last) => {
                let byte = if byte == b'\\' { bytes.next()? } else { byte };
                match last.filter(|_| is_range) {
                    Some((_, high)) => *high = byte,
                    None => ranges.push((byte, byte)),
                }
                is_range = false;
            }
        }
        next = bytes.next()?;
    }
    // `[]` and `[a-]` are none.
    (!ranges.is_empty() && !is_range).then_some(Token::Class { not, ranges })
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
            ("debian:1[0-24]", "debian:12", true),
            ("debian:1[0-24]", "debian:14", true),
            ("debian:1[0-24]", "debian:13", false),
            ("debian:1[!0-24]", "debian:13", true),
            ("debian:1[^0-24]", "debian:12", false),
            ("a[!b]c", "a/c", false),
            ("{debian,alpine}:*", "alpine:3", true),
            ("{debian,alpine}:*", "busybox:1", false),
            ("r.example.com/{a,b/{c,d}}/x", "r.example.com/b/d/x", true),
            ("r.example.com/{a,b/{c,d}}/x", "r.example.com/b/x", false),
            ("debian{,:12}", "debian", true),
            ("debian{,:12}", "debian:12", true),
            ("\\{a\\*", "{a*", true),
            ("\\{a\\*", "{ab", false),
            // Broken ones fit nothing, not even themselves.
            ("a[b", "a[b", false),
            ("a[]", "a[]", false),
            ("a{b", "a{b", false),
            ("a\\", "a\\", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_longer() {
        assert!(!matches(&"*a".repeat(500), &"a".repeat(255)));
        assert!(!matches(&"*".repeat(2000), "a"));
        assert!(!matches(&"{a,b}".repeat(200), &"a".repeat(200)));
        assert!(matches(&"{a,b}".repeat(8), &"a".repeat(8)));
    }
}
