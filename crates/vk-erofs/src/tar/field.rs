//! Numbers of a tar header: octal text, or big-endian two's complement with the first bit set.

/// A number of any sign; an empty field is 0.
pub(super) fn signed(field: &[u8]) -> Option<i64> {
    match field.first() {
        Some(first) if first & 0x80 != 0 => binary(field),
        _ => octal(field).and_then(|value| i64::try_from(value).ok()),
    }
}

/// A number that is not negative.
pub(super) fn unsigned(field: &[u8]) -> Option<u64> {
    match field.first() {
        Some(first) if first & 0x80 != 0 => {
            binary(field).and_then(|value| u64::try_from(value).ok())
        }
        _ => octal(field),
    }
}

fn octal(field: &[u8]) -> Option<u64> {
    let end = field
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(field.len());
    let text = field.get(..end)?.trim_ascii();
    text.iter().try_fold(0u64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// The first bit only marks the form; the second one is the sign.
fn binary(field: &[u8]) -> Option<i64> {
    let (first, rest) = field.split_first()?;
    let negative = first & 0x40 != 0;
    let start = if negative {
        i128::from(*first) - 0x100
    } else {
        i128::from(first & 0x3f)
    };
    let value = rest.iter().try_fold(start, |value, byte| {
        value.checked_mul(256)?.checked_add(i128::from(*byte))
    })?;
    i64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_numbers_are_read() {
        assert_eq!(unsigned(b"0000644\0"), Some(0o644));
        assert_eq!(unsigned(b"   644 \0"), Some(0o644));
        assert_eq!(unsigned(b"77777777777"), Some(0o77777777777));
        assert_eq!(unsigned(b"\0\0\0\0"), Some(0));
        assert_eq!(
            unsigned(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]),
            Some(2 << 32)
        );
        assert_eq!(signed(&[0xff; 12]), Some(-1));
        assert_eq!(unsigned(&[0xff; 12]), None);
        assert_eq!(unsigned(b"12x"), None);
        assert_eq!(unsigned(b"8"), None);
        assert_eq!(
            signed(&[0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            None
        );
    }
}
