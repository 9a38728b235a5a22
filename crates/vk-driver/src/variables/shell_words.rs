//! Variables in artifacts' names and paths, by a shell's rules inside double quotes.

/// A text that a shell would not expand without running something.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not allowed here")]
pub(crate) struct BadWord(&'static str);

/// Expands `$NAME`, `${NAME}`, and `${NAME}` with `:-`, `-`, `:+` or `+`; a backslash takes the
/// meaning from what follows it. A variable that is empty counts as not set.
///
/// # Errors
/// A command, arithmetic, or another form of expansion: nothing of the text is then expanded.
pub(crate) fn expand_word(text: &str, lookup: &dyn Fn(&str) -> String) -> Result<String, BadWord> {
    at_depth(text, lookup, 0)
}

/// Words inside words; deeper ones are refused.
const DEPTH_MAX: usize = 8;
/// Bytes of a word: no path of a guest has more.
const WORD_MAX: usize = 64 << 10;
/// What longer ones are.
pub(crate) const TOO_LONG: BadWord = BadWord("text so long, once its variables are put in,");

fn at_depth(text: &str, lookup: &dyn Fn(&str) -> String, depth: usize) -> Result<String, BadWord> {
    if depth > DEPTH_MAX {
        return Err(BadWord("a variable so deep inside others"));
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '\\', '`']) {
        let (before, special) = rest.split_at(at);
        out.push_str(before);
        let after = special.get(1..).unwrap_or_default();
        rest = match special.as_bytes().first() {
            Some(b'`') => return Err(BadWord("a command (`…`)")),
            Some(b'\\') => unescape(after, &mut out),
            _ => dollar(after, &mut out, lookup, depth)?,
        };
        if out.len() > WORD_MAX {
            return Err(TOO_LONG);
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn unescape<'a>(after: &'a str, out: &mut String) -> &'a str {
    match after.chars().next() {
        Some(taken @ ('$' | '`' | '"' | '\\')) => {
            out.push(taken);
            after.get(1..).unwrap_or_default()
        }
        Some('\n') => after.get(1..).unwrap_or_default(),
        _ => {
            out.push('\\');
            after
        }
    }
}

fn dollar<'a>(
    after: &'a str,
    out: &mut String,
    lookup: &dyn Fn(&str) -> String,
    depth: usize,
) -> Result<&'a str, BadWord> {
    if after.starts_with('(') {
        return Err(BadWord("a command or arithmetic ($(…))"));
    }
    let Some(inner) = after.strip_prefix('{') else {
        let width = name_width(after);
        match after.get(..width) {
            Some(name) if width > 0 => out.push_str(&lookup(name)),
            _ => out.push('$'),
        }
        return Ok(after.get(width..).unwrap_or_default());
    };
    let end = closing_brace(inner).ok_or(BadWord("a `${` without its `}`"))?;
    let (inside, rest) = (inner.get(..end).unwrap_or_default(), inner.get(end + 1..));
    let (name, operator) = inside.split_at(name_width(inside));
    if name.is_empty() {
        return Err(BadWord("this form of ${…}"));
    }
    let value = lookup(name);
    let word = |word: &str| at_depth(word, lookup, depth + 1);
    let operator = operator.strip_prefix(':').unwrap_or(operator);
    out.push_str(&match (operator.split_at_checked(1), value.is_empty()) {
        (None, _) => value,
        (Some(("-", default)), true) => word(default)?,
        (Some(("-", _)), false) => value,
        (Some(("+", _)), true) => String::new(),
        (Some(("+", other)), false) => word(other)?,
        _ => return Err(BadWord("this form of ${…}")),
    });
    Ok(rest.unwrap_or_default())
}

fn name_width(text: &str) -> usize {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let width = text.bytes().take_while(|byte| is_part(*byte)).count();
    match text.starts_with(|c: char| c.is_ascii_digit()) {
        true => 0,
        false => width,
    }
}

/// Where the brace closes that was opened before `text`.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 1;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Result<String, BadWord> {
        expand_word(text, &|name: &str| match name {
            "A" => "a $B".to_owned(),
            "REF" => "main".to_owned(),
            _ => String::new(),
        })
    }

    #[test]
    fn a_word_that_grows_beyond_any_path_is_refused() {
        let large = |_: &str| "x".repeat(1000);
        let word = |times: usize| expand_word(&"$A".repeat(times), &large);
        assert_eq!(word(65).map(|word| word.len()), Ok(65_000));
        assert_eq!(word(66), Err(TOO_LONG));
        assert_eq!(word(10_000_000), Err(TOO_LONG));
    }

    #[test]
    fn words_expand_as_between_double_quotes() {
        for (text, expected) in [
            ("plain/*.txt", "plain/*.txt"),
            ("$A", "a $B"),
            ("out-${REF}.zip", "out-main.zip"),
            ("${NONE:-x-$REF}", "x-main"),
            ("${NONE-y}", "y"),
            ("${REF:+set}", "set"),
            ("${NONE:+set}", ""),
            ("'$REF'", "'main'"),
            (r"\$REF", "$REF"),
            (r"a\b", r"a\b"),
            ("5$", "5$"),
            ("$1", "$1"),
        ] {
            assert_eq!(word(text).as_deref(), Ok(expected), "{text}");
        }
        for bad in ["$(id)", "`id`", "${REF", "${REF%x}", "${}"] {
            assert!(word(bad).is_err(), "{bad}");
        }
    }
}
