//! Durations as Go writes and reads them: `1h15m`, `5.5m`, `90s`.

use std::time::Duration;

/// A duration below zero, by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// Zero or more.
    Positive(Duration),
    /// Less.
    Negative,
}

/// Reads a duration. A bare number but `0` is none, as in Go.
#[must_use]
pub fn parse(text: &str) -> Option<Signed> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(Signed::Positive(Duration::ZERO));
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (part, after) = part(rest)?;
        nanos = nanos.checked_add(part)?;
        rest = after;
    }
    // Go holds durations in 63 bits of nanoseconds.
    let nanos = i64::try_from(nanos).ok()?.unsigned_abs();
    if negative && nanos > 0 {
        return Some(Signed::Negative);
    }
    Some(Signed::Positive(Duration::from_nanos(nanos)))
}

/// One number with its unit, in nanoseconds, and what follows it.
fn part(text: &str) -> Option<(u128, &str)> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, after) = rest.split_at(end);
    let unit: u128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3600 * 1_000_000_000,
        _ => return None,
    };
    let whole: u128 = match whole {
        "" => 0,
        whole => whole.parse().ok()?,
    };
    let mut nanos = whole.checked_mul(unit)?;
    let mut scale = unit;
    for digit in fraction.bytes() {
        scale /= 10;
        nanos = nanos.checked_add(scale.checked_mul(u128::from(digit - b'0'))?)?;
    }
    Some((nanos, after))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Writes whole seconds: `1h0m0s`, `30m0s`, `45s`.
#[must_use]
pub fn format_secs(secs: u64) -> String {
    let (hours, minutes, secs) = (secs / 3600, secs / 60 % 60, secs % 60);
    match (hours, minutes) {
        (0, 0) => format!("{secs}s"),
        (0, _) => format!("{minutes}m{secs}s"),
        _ => format!("{hours}h{minutes}m{secs}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let positive = |ms| Some(Signed::Positive(Duration::from_millis(ms)));
        for (text, expected) in [
            ("1h", positive(3_600_000)),
            ("90s", positive(90_000)),
            ("1h15m", positive(4_500_000)),
            ("5.5m", positive(330_000)),
            ("1.5h30m", positive(7_200_000)),
            (".5s", positive(500)),
            ("2.s", positive(2_000)),
            ("+3ms", positive(3)),
            ("0", positive(0)),
            ("-0", positive(0)),
            ("0s", positive(0)),
            ("-10m", Some(Signed::Negative)),
            (
                "1500us",
                Some(Signed::Positive(Duration::from_micros(1500))),
            ),
            ("10", None),
            ("", None),
            ("-", None),
            (".s", None),
            ("foobar", None),
            ("1d", None),
            ("1h 5m", None),
            ("1 h", None),
            ("h", None),
            ("9999999999h", None),
            ("99999999999999999999999999999999999999999h", None),
            ("1é", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (secs, text) in [
            (0, "0s"),
            (45, "45s"),
            (60, "1m0s"),
            (3600, "1h0m0s"),
            (5445, "1h30m45s"),
        ] {
            assert_eq!(format_secs(secs), text);
        }
    }
}
