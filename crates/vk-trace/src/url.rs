//! The second mask: values of URL parameters that are known to hold secrets (STAGE-25).
//!
//! After `?` or `&`, a name of [`NAMES`] in any case, and `=`: the value, also an empty one, is
//! replaced by one mask. Nothing is held: a name is passed on as it stands.

use memchr::memchr2;

use crate::ReadTime;
use crate::sink::Sink;

const NAMES: [&[u8]; 6] = [
    b"private_token",
    b"authenticity_token",
    b"rss_token",
    b"x-amz-signature",
    b"x-amz-credential",
    b"x-amz-security-token",
];
const LONGEST_NAME: usize = 20;

/// One stream's search for parameters.
#[derive(Debug, Default)]
pub(crate) struct UrlMasker {
    place: Place,
}

#[derive(Clone, Copy, Debug, Default)]
enum Place {
    #[default]
    Outside,
    Name(Name),
    Value,
}

/// What earlier texts brought of a name.
#[derive(Clone, Copy, Debug, Default)]
struct Name {
    bytes: [u8; LONGEST_NAME],
    len: usize,
}

impl Name {
    /// Adds a piece; whatever makes a name too long makes it unknown.
    fn push(&mut self, piece: &[u8]) {
        for (slot, byte) in self.bytes.iter_mut().skip(self.len).zip(piece) {
            *slot = *byte;
        }
        self.len = self.len.saturating_add(piece.len());
    }

    /// Whether this and `piece` are a known name.
    fn goes_on_known(mut self, piece: &[u8]) -> bool {
        if self.len == 0 {
            return is_known(piece);
        }
        self.push(piece);
        self.bytes.get(..self.len).is_some_and(is_known)
    }
}

fn is_known(name: &[u8]) -> bool {
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// For each byte, whether it may be in a name.
#[allow(
    clippy::indexing_slicing,
    reason = "a byte is within a table of all bytes"
)]
const NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    loop {
        table[byte as usize] = byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-');
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

/// How many bytes at the front may be part of a known name, and one more than any has at most.
fn name_len(text: &[u8]) -> usize {
    let fits = |byte: &&u8| {
        NAME_BYTES
            .get(usize::from(**byte))
            .copied()
            .unwrap_or(false)
    };
    text.iter().take(LONGEST_NAME + 1).take_while(fits).count()
}

/// A search with what follows it in the chain.
pub(crate) struct UrlLink<'a, S> {
    pub(crate) masker: &'a mut UrlMasker,
    pub(crate) next: S,
}

impl<S: Sink> Sink for UrlLink<'_, S> {
    fn text(&mut self, at: ReadTime, mut text: &[u8]) {
        while !text.is_empty() {
            let (passed, masked) = match self.masker.place {
                Place::Outside | Place::Name(_) => self.masker.read_to_value(text),
                Place::Value => (self.masker.leave_value(text), false),
            };
            let (piece, rest) = text.split_at_checked(passed.len).unwrap_or((text, &[]));
            if passed.shown && !piece.is_empty() {
                self.next.text(at, piece);
            }
            if masked {
                self.next.mask(at);
            }
            text = rest;
        }
    }

    /// A mask of an earlier link: part of a value like any byte, and the end of a name.
    fn mask(&mut self, at: ReadTime) {
        if !matches!(self.masker.place, Place::Value) {
            self.masker.place = Place::Outside;
            self.next.mask(at);
        }
    }
}

/// A piece at the front of a text, and whether it is passed on.
struct Piece {
    len: usize,
    shown: bool,
}

impl UrlMasker {
    /// Reads up to the start of a value, or to the end; says whether a value starts there.
    fn read_to_value(&mut self, text: &[u8]) -> (Piece, bool) {
        let mut name = match self.place {
            Place::Name(name) => Some(name),
            _ => None,
        };
        let mut at = 0;
        loop {
            let rest = text.get(at..).unwrap_or_default();
            let Some(read) = &mut name else {
                let Some(found) = memchr2(b'?', b'&', rest) else {
                    break;
                };
                name = Some(Name::default());
                at += found + 1;
                continue;
            };
            let len = name_len(rest);
            let (piece, behind) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            at += len + 1;
            match behind.first() {
                None => {
                    read.push(piece);
                    break;
                }
                Some(b'=') if read.goes_on_known(piece) => {
                    self.place = Place::Value;
                    return (
                        Piece {
                            len: at,
                            shown: true,
                        },
                        true,
                    );
                }
                Some(b'?' | b'&') => *read = Name::default(),
                Some(_) => name = None,
            }
        }
        self.place = name.map_or(Place::Outside, Place::Name);
        (
            Piece {
                len: text.len(),
                shown: true,
            },
            false,
        )
    }

    /// Drops bytes up to the end of the value.
    fn leave_value(&mut self, text: &[u8]) -> Piece {
        let len = value_len(text);
        if len < text.len() {
            self.place = Place::Outside;
        }
        Piece { len, shown: false }
    }
}

/// Length of a value at the front of `text`: it ends before `?`, `&`, and any character that is
/// white space or a control.
fn value_len(text: &[u8]) -> usize {
    let mut from = 0;
    while let Some(rest) = text.get(from..) {
        let Some(found) = rest.iter().position(|byte| may_end_value(*byte)) else {
            break;
        };
        from += found;
        let rune = text.get(from..).unwrap_or_default();
        match rune.first() {
            Some(byte) if byte.is_ascii() => return from,
            _ if ends_value(rune) => return from,
            _ => from += 1,
        }
    }
    text.len()
}

/// Whether a rune that begins with `byte` may end a value. Of the runes that are longer than a
/// byte, white space and controls begin with one of these.
fn may_end_value(byte: u8) -> bool {
    matches!(
        byte,
        0..=b' ' | 0x7f | b'?' | b'&' | 0xc2 | 0xe1 | 0xe2 | 0xe3
    )
}

fn ends_value(text: &[u8]) -> bool {
    let rune: &[u8] = match text {
        [0xc2, _, ..] => text.get(..2).unwrap_or_default(),
        _ => text.get(..3).unwrap_or_default(),
    };
    let rune = std::str::from_utf8(rune).unwrap_or_default();
    rune.chars()
        .any(|rune| rune.is_whitespace() || rune.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Kept;

    fn mask(writes: &[&str]) -> String {
        let (mut masker, mut kept) = (UrlMasker::default(), Kept::default());
        for text in writes {
            let mut link = UrlLink {
                masker: &mut masker,
                next: &mut kept,
            };
            link.text(ReadTime::default(), text.as_bytes());
        }
        kept.string()
    }

    /// STAGE-25
    #[test]
    fn a_value_ends_at_any_white_space_or_control() {
        for end in [
            "\u{85}", "\u{a0}", "\u{9b}", "\u{2003}", "\u{2028}", "\u{3000}", "\u{1680}",
        ] {
            let text = format!("?rss_token=é\u{20ac}\u{2603}x{end}y");
            assert_eq!(
                mask(&[&text]),
                format!("?rss_token=[MASKED]{end}y"),
                "{end:?}"
            );
        }
        assert!(
            (0..=u32::from(char::MAX))
                .filter_map(char::from_u32)
                .all(|rune| {
                    let ends =
                        matches!(rune, '?' | '&') || rune.is_whitespace() || rune.is_control();
                    (value_len(rune.to_string().as_bytes()) == 0) == ends
                })
        );
    }

    /// STAGE-25
    #[test]
    fn an_earlier_mask_is_part_of_a_value_and_no_part_of_a_name() {
        let (mut masker, mut kept) = (UrlMasker::default(), Kept::default());
        let at = ReadTime::default();
        let mut link = UrlLink {
            masker: &mut masker,
            next: &mut kept,
        };
        link.text(at, b"?private_token=");
        link.mask(at);
        link.text(at, b"&private_");
        link.mask(at);
        link.text(at, b"token=x");
        assert_eq!(
            kept.string(),
            "?private_token=[MASKED]&private_[MASKED]token=x"
        );
    }
}
