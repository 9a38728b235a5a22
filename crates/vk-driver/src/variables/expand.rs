//! Variables in texts, by the rules of Go's `os.Expand`.

/// A text that becomes longer than it may once its variables are put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its variables make it longer than this node takes")]
pub(crate) struct TooLong;

/// Replaces each variable by what `lookup` gives; once, so that what was put in stays as it is.
///
/// # Errors
/// What comes out has more than `most` bytes: a few bytes name a large value thousands of times.
pub(crate) fn expand(
    text: &str,
    most: usize,
    lookup: impl Fn(&str) -> String,
) -> Result<String, TooLong> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if out.len() > most {
            return Err(TooLong);
        }
        if after.is_empty() {
            out.push('$');
            return Ok(out);
        }
        let (name, width) = name_of(after);
        match name {
            Name::None if width == 0 => out.push('$'),
            Name::None => {}
            Name::Is("$") => out.push('$'),
            Name::Is(name) if is_shells_own(name) => {}
            Name::Is(name) => out.push_str(&lookup(name)),
        }
        rest = after.get(width..).unwrap_or_default();
    }
    out.push_str(rest);
    match out.len() > most {
        true => Err(TooLong),
        false => Ok(out),
    }
}

enum Name<'a> {
    None,
    Is(&'a str),
}

/// The name at the beginning of what follows a `$`, and how many bytes it takes.
fn name_of(text: &str) -> (Name<'_>, usize) {
    let bytes = text.as_bytes();
    match bytes {
        [b'{', special, b'}', ..] if is_special(*special) => {
            (Name::Is(text.get(1..2).unwrap_or_default()), 3)
        }
        [b'{', b'}', ..] => (Name::None, 2),
        [b'{', ..] => match text.find('}') {
            Some(end) => (Name::Is(text.get(1..end).unwrap_or_default()), end + 1),
            None => (Name::None, 1),
        },
        [special, ..] if is_special(*special) => (Name::Is(text.get(..1).unwrap_or_default()), 1),
        _ => {
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let width = bytes.iter().take_while(|byte| is_part(byte)).count();
            match text.get(..width) {
                Some(name) if width > 0 => (Name::Is(name), width),
                _ => (Name::None, 0),
            }
        }
    }
}

const fn is_special(byte: u8) -> bool {
    matches!(
        byte,
        b'*' | b'#' | b'$' | b'@' | b'!' | b'?' | b'-' | b'0'..=b'9'
    )
}

/// What a shell sets itself, and a text has not.
fn is_shells_own(name: &str) -> bool {
    matches!(name.as_bytes(), [byte] if is_special(*byte) && *byte != b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_expand_as_gos_do() {
        let lookup = |name: &str| match name {
            "A" => "<$B>".to_owned(),
            "A:-b" => "odd".to_owned(),
            _ => String::new(),
        };
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$A", "<$B>"),
            ("${A}x", "<$B>x"),
            ("x$A.y", "x<$B>.y"),
            ("${A:-b}", "odd"),
            ("$MISSING-", "-"),
            ("${}x", "x"),
            ("${open", "open"),
            ("$$A", "$A"),
            ("$${A}", "${A}"),
            ("$1abc", "abc"),
            ("${*}$@$#", ""),
            ("$-x", "x"),
            ("cost: $", "cost: $"),
            ("$ A", "$ A"),
            ("$é", "$é"),
            ("%A%", "%A%"),
        ] {
            let expanded = expand(text, 100, lookup);
            assert_eq!(expanded.as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_text_that_grows_beyond_its_bound_is_none() {
        let lookup = |_: &str| "x".repeat(1000);
        assert_eq!(
            expand("$A$A", 2000, lookup).map(|text| text.len()),
            Ok(2000)
        );
        assert_eq!(expand("$A$A.", 2000, lookup), Err(TooLong));
        assert_eq!(expand("$A$A$A", 2000, lookup), Err(TooLong));
        // Nor is more of it made than that.
        assert_eq!(expand(&"$A".repeat(10_000_000), 2000, lookup), Err(TooLong));
    }
}
