//! From RE2's syntax to that of the `regex` crate, where the two differ: `\d`, `\w`, `\s` and `\b`
//! know ASCII only in RE2, a lone `{` is a brace, `[` and `&&` in a class are characters.

use std::iter::Peekable;
use std::str::Chars;

type Rest<'a> = Peekable<Chars<'a>>;

/// Writes a pattern so that it means what RE2 takes it for.
///
/// # Errors
///
/// What RE2 does not take, or what cannot be said otherwise.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => escape(&mut rest, &mut out)?,
            '[' => class(&mut rest, &mut out)?,
            '(' => group(&mut rest, &mut out)?,
            '{' => brace(&mut rest, &mut out),
            '}' => out.push_str("\\}"),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// A class that a letter stands for, without its brackets.
fn shorthand(letter: char) -> Option<&'static str> {
    match letter {
        'd' => Some("0-9"),
        'D' => Some("^0-9"),
        'w' => Some("0-9A-Za-z_"),
        'W' => Some("^0-9A-Za-z_"),
        's' => Some("\\t\\n\\f\\r "),
        'S' => Some("^\\t\\n\\f\\r "),
        _ => None,
    }
}

/// What follows a backslash outside a class.
fn escape(rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    match rest.peek() {
        Some('b') => {
            rest.next();
            out.push_str("(?-u:\\b)");
        }
        Some('B') => {
            rest.next();
            out.push_str("(?-u:\\B)");
        }
        Some(anchor @ ('A' | 'z')) => {
            out.push('\\');
            out.push(*anchor);
            rest.next();
        }
        Some('Q') => {
            rest.next();
            literal(rest, out);
        }
        _ => character(rest, out)?,
    }
    Ok(())
}

/// `\Q…\E`: all as it is.
fn literal(rest: &mut Rest<'_>, out: &mut String) {
    while let Some(c) = rest.next() {
        if c == '\\' && rest.peek() == Some(&'E') {
            rest.next();
            return;
        }
        push_literal(c, out);
    }
}

/// What may follow a backslash in a class and outside it.
fn character(rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    let Some(c) = rest.next() else {
        return Err("it ends with a backslash".into());
    };
    if let Some(class) = shorthand(c) {
        out.push('[');
        out.push_str(class);
        out.push(']');
        return Ok(());
    }
    match c {
        'a' | 'f' | 't' | 'n' | 'r' | 'v' => {
            out.push('\\');
            out.push(c);
        }
        'p' | 'P' | 'x' => {
            out.push('\\');
            out.push(c);
            braced(rest, out);
        }
        c if c.is_ascii_alphanumeric() => return Err(format!("RE2 has no \\{c}")),
        c => push_literal(c, out),
    }
    Ok(())
}

fn push_literal(c: char, out: &mut String) {
    if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
        out.push('\\');
    }
    out.push(c);
}

/// `{…}` after `\p` or `\x`, as it is.
fn braced(rest: &mut Rest<'_>, out: &mut String) {
    if rest.peek() != Some(&'{') {
        return;
    }
    for c in rest.by_ref() {
        out.push(c);
        if c == '}' {
            return;
        }
    }
}

/// A class, after its `[`.
fn class(rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    out.push('[');
    if rest.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    // Whether what stands before may begin a range, and whether a range waits for its end.
    let (mut begins, mut ends) = (false, false);
    loop {
        let Some(c) = rest.next() else {
            return Err("a [ is not closed".into());
        };
        match c {
            ']' if !first => {
                out.push(']');
                return Ok(());
            }
            '[' if rest.peek() == Some(&':') => {
                out.push('[');
                posix(rest, out);
                (begins, ends) = (false, false);
            }
            '-' if begins && !matches!(rest.peek(), None | Some(']')) => {
                out.push('-');
                (begins, ends) = (false, true);
            }
            '\\' => {
                let set = rest
                    .peek()
                    .is_some_and(|c| shorthand(*c).is_some() || matches!(*c, 'p' | 'P'));
                character(rest, out)?;
                (begins, ends) = (!set && !ends, false);
            }
            c => {
                push_literal(c, out);
                (begins, ends) = (!ends, false);
            }
        }
        first = false;
    }
}

/// `[:name:]`, after its `[`.
fn posix(rest: &mut Rest<'_>, out: &mut String) {
    while let Some(c) = rest.next_if(|c| *c == ':' || *c == '^' || c.is_ascii_alphabetic()) {
        out.push(c);
    }
    out.extend(rest.next_if_eq(&']'));
}

/// A group, after its `(`.
fn group(rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    out.push('(');
    if rest.peek() != Some(&'?') {
        return Ok(());
    }
    out.extend(rest.next());
    match rest.peek() {
        Some('P') => Ok(()),
        Some('<') => {
            out.extend(rest.next());
            match rest.peek() {
                Some('=' | '!') => Err("RE2 looks at nothing before a match".into()),
                _ => Ok(()),
            }
        }
        Some('=' | '!') => Err("RE2 looks at nothing after a match".into()),
        _ => flags(rest, out),
    }
}

fn flags(rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    while let Some(c) = rest.next_if(|c| !matches!(c, ')' | ':')) {
        if !matches!(c, 'i' | 'm' | 's' | 'U' | '-') {
            return Err(format!("RE2 has no flag {c}"));
        }
        out.push(c);
    }
    Ok(())
}

/// A `{`: the begin of a repetition, or a brace.
fn brace(rest: &mut Rest<'_>, out: &mut String) {
    let mut ahead = rest.clone();
    let mut text = String::from("{");
    let mut take = |text: &mut String, wanted: fn(&char) -> bool| {
        let mut count = 0_usize;
        while let Some(c) = ahead.next_if(wanted) {
            text.push(c);
            count = count.saturating_add(1);
        }
        count
    };
    let low = take(&mut text, char::is_ascii_digit);
    let comma = take(&mut text, |c| *c == ',');
    take(&mut text, char::is_ascii_digit);
    let close = ahead.next() == Some('}');
    if low == 0 || comma > 1 || !close {
        out.push_str("\\{");
        return;
    }
    out.push_str(&text);
    out.push('}');
    for _ in text.chars() {
        rest.next();
    }
}
