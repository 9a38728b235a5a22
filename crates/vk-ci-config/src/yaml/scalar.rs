//! What a plain scalar is under YAML 1.1 as Ruby's Psych reads it.

use super::node::Value;

/// What a plain scalar is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    /// A value.
    Is(Value),
    /// Something that has no place in a configuration: what Ruby would make of it.
    Odd(&'static str),
}

/// Reads a plain scalar.
pub(crate) fn plain(text: &str) -> Plain {
    if let Some(word) = word(text) {
        return Plain::Is(word);
    }
    let bytes = text.as_bytes();
    let begins = |c: u8| c.is_ascii_digit() || matches!(c, b'-' | b'+' | b'.');
    match bytes.first() {
        Some(b':') if bytes.len() > 1 => Plain::Odd("a symbol"),
        Some(first) if begins(*first) => number(text),
        _ => Plain::Is(Value::Text(text.into())),
    }
}

/// The words that are values.
fn word(text: &str) -> Option<Value> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if text.is_empty() || text == "~" || is(&["null"]) {
        Some(Value::Null)
    } else if is(&["true", "yes", "on"]) {
        Some(Value::Bool(true))
    } else if is(&["false", "no", "off"]) {
        Some(Value::Bool(false))
    } else {
        None
    }
}

fn number(text: &str) -> Plain {
    if is_date(text) {
        return Plain::Odd("a date");
    }
    if is_sexagesimal(text) {
        return Plain::Odd("a number to the base of 60");
    }
    if matches!(text, ".inf" | ".Inf" | ".INF" | "-.inf" | "-.Inf" | "-.INF") {
        return Plain::Odd("infinity");
    }
    if matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Plain::Odd("not a number");
    }
    match integer(text).or_else(|| float(text)) {
        Some(plain) => plain,
        None => Plain::Is(Value::Text(text.into())),
    }
}

/// `2026-11-30`, alone or with a time after it.
fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let (Some(year), Some(month), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let after = rest.as_bytes().get(digits);
    let number = |part: &str, longest: usize| {
        (1..=longest).contains(&part.len()) && part.bytes().all(|c| c.is_ascii_digit())
    };
    number(year, 4)
        && year.len() == 4
        && number(month, 2)
        && (1..=2).contains(&digits)
        && matches!(after, None | Some(b' ' | b'\t' | b't' | b'T'))
}

/// `12:30`, `1:02:03.5`.
fn is_sexagesimal(text: &str) -> bool {
    let text = unsigned(text);
    let mut parts = text.split(':');
    let first = parts.next().is_some_and(|part| {
        part.starts_with(|c: char| c.is_ascii_digit())
            && part.bytes().all(|c| c.is_ascii_digit() || c == b'_')
    });
    let rest: Vec<&str> = parts.collect();
    let minutes = |part: &&str| {
        let whole = part.split('.').next().unwrap_or_default();
        let tail = part.bytes().all(|c| c.is_ascii_digit() || c == b'.');
        tail && (1..=2).contains(&whole.len()) && whole.parse().is_ok_and(|value: u8| value < 60)
    };
    first && (1..=2).contains(&rest.len()) && rest.iter().all(minutes)
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

fn integer(text: &str) -> Option<Plain> {
    let digits = unsigned(text);
    let radix = |prefix: &str, radix: u32| {
        let rest = digits.strip_prefix(prefix)?;
        let clean: String = rest.chars().filter(|c| !matches!(c, '_' | ',')).collect();
        let good = !clean.is_empty() && clean.chars().all(|c| c.is_digit(radix));
        good.then(|| u64::from_str_radix(&clean, radix).map(|value| value.to_string()))
    };
    let found = radix("0b", 2)
        .or_else(|| radix("0x", 16))
        .or_else(|| (digits.len() > 1).then(|| radix("0", 8)).flatten());
    let value = match found {
        Some(Ok(value)) => value,
        Some(Err(_)) => return Some(Plain::Odd("a number that is too large")),
        None => decimal(digits)?,
    };
    let minus = if text.starts_with('-') && value != "0" {
        "-"
    } else {
        ""
    };
    Some(Plain::Is(Value::Int(format!("{minus}{value}"))))
}

/// A whole decimal number; a `_` or `,` may stand before any digit but the first.
fn decimal(digits: &str) -> Option<String> {
    if digits == "0" {
        return Some(digits.into());
    }
    if !digits.starts_with(|c: char| matches!(c, '1'..='9')) {
        return None;
    }
    let mut value = String::new();
    let mut chars = digits.chars();
    while let Some(next) = chars.next() {
        let digit = if matches!(next, '_' | ',') {
            chars.next()?
        } else {
            next
        };
        value.push(digit.is_ascii_digit().then_some(digit)?);
    }
    Some(value)
}

/// A number with a point; an exponent needs its sign.
fn float(text: &str) -> Option<Plain> {
    let (whole, rest) = unsigned(text).split_once('.')?;
    let (fraction, exponent) = match rest.split_once(['e', 'E']) {
        Some((fraction, exponent)) => (fraction, Some(exponent)),
        None => (rest, None),
    };
    let digits = |part: &str| part.bytes().all(|c| c.is_ascii_digit());
    let whole_good = whole.is_empty()
        || (whole.starts_with(|c: char| c.is_ascii_digit())
            && whole
                .bytes()
                .all(|c| c.is_ascii_digit() || matches!(c, b'_' | b',')));
    let exponent_good = exponent.is_none_or(|exponent| {
        exponent
            .strip_prefix(['-', '+'])
            .is_some_and(|rest| !rest.is_empty() && digits(rest))
    });
    if !whole_good || !digits(fraction) || !exponent_good {
        return None;
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let clean: String = text.chars().filter(|c| !matches!(c, '_' | ',')).collect();
    let value: f64 = clean.parse().ok()?;
    Some(as_ruby(value))
}

/// A number as Ruby writes it, where it does so without an exponent.
fn as_ruby(value: f64) -> Plain {
    let size = value.abs();
    if size == 0.0 || (1e-4..1e16).contains(&size) {
        Plain::Is(Value::Float(format!("{value:?}")))
    } else {
        Plain::Odd("a number that is very large or small")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_are_what_ruby_makes_of_them() {
        let int = |text: &str| Plain::Is(Value::Int(text.into()));
        let float = |text: &str| Plain::Is(Value::Float(text.into()));
        let text = |text: &str| Plain::Is(Value::Text(text.into()));
        let rows = [
            ("yes", Plain::Is(Value::Bool(true))),
            ("On", Plain::Is(Value::Bool(true))),
            ("TRUE", Plain::Is(Value::Bool(true))),
            ("off", Plain::Is(Value::Bool(false))),
            ("y", text("y")),
            ("~", Plain::Is(Value::Null)),
            ("", Plain::Is(Value::Null)),
            ("nULL", Plain::Is(Value::Null)),
            ("010", int("8")),
            ("0_1", int("1")),
            ("0o10", text("0o10")),
            ("0b11", int("3")),
            ("0b2", text("0b2")),
            ("0x1F", int("31")),
            ("0x", text("0x")),
            ("08", text("08")),
            ("0", int("0")),
            ("-0", int("0")),
            ("+5", int("5")),
            ("-17", int("-17")),
            ("1_000", int("1000")),
            ("1,000", int("1000")),
            ("1_", text("1_")),
            ("1__0", text("1__0")),
            (
                "123456789012345678901234567890",
                int("123456789012345678901234567890"),
            ),
            ("1.10", float("1.1")),
            (".5", float("0.5")),
            ("-.5", float("-0.5")),
            ("+.5", float("0.5")),
            ("1.", float("1.0")),
            ("0.", float("0.0")),
            ("-1.50", float("-1.5")),
            ("123456.789", float("123456.789")),
            ("1.0e+3", float("1000.0")),
            ("1e3", text("1e3")),
            ("1.0e3", text("1.0e3")),
            ("1.e5", text("1.e5")),
            ("1.2.3", text("1.2.3")),
            (".", text(".")),
            ("-", text("-")),
            ("...", text("...")),
            (
                "100000000000000000.0",
                Plain::Odd("a number that is very large or small"),
            ),
            (
                "0.00001",
                Plain::Odd("a number that is very large or small"),
            ),
            ("12:30", Plain::Odd("a number to the base of 60")),
            ("1:2:3", Plain::Odd("a number to the base of 60")),
            ("12:30:45.5", Plain::Odd("a number to the base of 60")),
            ("12:60", text("12:60")),
            (":foo", Plain::Odd("a symbol")),
            (".inf", Plain::Odd("infinity")),
            (".nan", Plain::Odd("not a number")),
            ("2026-11-30", Plain::Odd("a date")),
            ("2026-1-2", Plain::Odd("a date")),
            ("2026-11-30 10:00:00", Plain::Odd("a date")),
            ("2026-11-30-nightly", text("2026-11-30-nightly")),
            ("=", text("=")),
            ("echo a", text("echo a")),
        ];
        for (written, read) in rows {
            assert_eq!(plain(written), read, "{written}");
        }
    }
}
