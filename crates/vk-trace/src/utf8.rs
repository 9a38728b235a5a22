//! UTF-8 repair: each byte that is no part of a valid rune becomes U+FFFD; an unfinished rune at
//! the end of a write waits for the rest (STAGE-29).

use crate::ReadTime;

const REPLACEMENT: &[u8] = "\u{FFFD}".as_bytes();
/// The same, its first byte lowest.
const REPLACEMENT_BITS: u32 = 0x00bd_bfef;

/// One stream's repair. Holds at most three bytes.
#[derive(Debug, Default)]
pub(crate) struct Repair {
    unfinished: Vec<u8>,
    since: ReadTime,
    repaired: Vec<u8>,
}

impl Repair {
    /// Gives `pass` the repaired text of what was held and of `bytes`, in whole runes, with the
    /// time each piece was read.
    pub(crate) fn feed(
        &mut self,
        at: ReadTime,
        bytes: &[u8],
        mut pass: impl FnMut(ReadTime, &[u8]),
    ) {
        let bytes = self.finish_rune(bytes, &mut pass);
        let Some((whole, unfinished)) = bytes.split_at_checked(bytes.len() - unfinished_len(bytes))
        else {
            return;
        };
        if !whole.is_empty() {
            if std::str::from_utf8(whole).is_ok() {
                pass(at, whole);
            } else {
                self.repaired.clear();
                repair_into(whole, &mut self.repaired);
                pass(at, &self.repaired);
            }
        }
        if !unfinished.is_empty() {
            self.unfinished.extend_from_slice(unfinished);
            self.since = at;
        }
    }

    /// Takes the rest of a held rune from the front of `bytes` and gives back what follows.
    fn finish_rune<'a>(
        &mut self,
        mut bytes: &'a [u8],
        pass: &mut impl FnMut(ReadTime, &[u8]),
    ) -> &'a [u8] {
        while !self.unfinished.is_empty() {
            let Some((&next, rest)) = bytes.split_first() else {
                break;
            };
            self.unfinished.push(next);
            match std::str::from_utf8(&self.unfinished) {
                Ok(_) => {
                    bytes = rest;
                    pass(self.since, &self.unfinished);
                    self.unfinished.clear();
                }
                Err(error) if error.error_len().is_none() => bytes = rest,
                // `next` does not go on with the rune and is looked at afresh.
                Err(_) => {
                    self.unfinished.pop();
                    self.flush(&mut *pass);
                }
            }
        }
        bytes
    }

    /// The end of the stream, or of hope for the held rune: its bytes become U+FFFD.
    pub(crate) fn flush(&mut self, mut pass: impl FnMut(ReadTime, &[u8])) {
        if !self.unfinished.is_empty() {
            pass(self.since, &REPLACEMENT.repeat(self.unfinished.len()));
            self.unfinished.clear();
        }
    }
}

/// How many bytes at the end begin a rune that the next write may finish.
fn unfinished_len(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|&len| {
            let tail = bytes
                .split_at_checked(bytes.len() - len)
                .unwrap_or_default()
                .1;
            std::str::from_utf8(tail)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

fn repair_into(mut bytes: &[u8], repaired: &mut Vec<u8>) {
    while !bytes.is_empty() {
        let valid = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
        let (valid, rest) = bytes.split_at_checked(valid).unwrap_or((bytes, &[]));
        repaired.extend_from_slice(valid);
        bytes = repair_start(rest, repaired);
    }
}

/// Repairs some bytes at the front one by one; returns the others.
///
/// What begins no valid rune is replaced alone: the bytes behind it are judged afresh. Bytes are
/// copied as blocks of four of which one or three count, since what is next cannot be guessed.
fn repair_start<'a>(mut bytes: &'a [u8], repaired: &mut Vec<u8>) -> &'a [u8] {
    let (mut block, mut filled) = ([0; 256], 0);
    while let [byte, rest @ ..] = bytes {
        let Some(slot) = block.get_mut(filled..filled + 4) else {
            break;
        };
        let next = rest.first().copied().unwrap_or_default();
        // Both at once: each alone is a guess that goes wrong every fourth time.
        let may_be_rune = (*byte >= 0xc2) & (next & 0xc0 == 0x80);
        let rune = if may_be_rune { rune_len(bytes) } else { None };
        match rune {
            Some(len) => {
                let (rune, behind) = bytes.split_at_checked(len).unwrap_or((bytes, &[]));
                slot.iter_mut()
                    .zip(rune)
                    .for_each(|(slot, byte)| *slot = *byte);
                filled += len;
                bytes = behind;
            }
            None => {
                // All ones for what is no ASCII: a choice by arithmetic costs the same either way.
                let broken = (u32::from(*byte) >> 7).wrapping_neg();
                let chosen = (u32::from(*byte) & !broken) | (REPLACEMENT_BITS & broken);
                slot.copy_from_slice(&chosen.to_le_bytes());
                filled += 1 + 2 * usize::from(*byte >> 7);
                bytes = rest;
            }
        }
    }
    repaired.extend_from_slice(block.get(..filled).unwrap_or_default());
    bytes
}

/// Length of the valid rune of two bytes or more that `bytes` begin with, if they do.
fn rune_len(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [0xc2..=0xdf, 0x80..=0xbf, ..] => Some(2),
        [0xe0, 0xa0..=0xbf, 0x80..=0xbf, ..]
        | [0xe1..=0xec | 0xee | 0xef, 0x80..=0xbf, 0x80..=0xbf, ..]
        | [0xed, 0x80..=0x9f, 0x80..=0xbf, ..] => Some(3),
        [0xf0, 0x90..=0xbf, 0x80..=0xbf, 0x80..=0xbf, ..]
        | [0xf1..=0xf3, 0x80..=0xbf, 0x80..=0xbf, 0x80..=0xbf, ..]
        | [0xf4, 0x80..=0x8f, 0x80..=0xbf, 0x80..=0xbf, ..] => Some(4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn repair(writes: &[&[u8]]) -> String {
        let (mut repair, mut out) = (Repair::default(), Vec::new());
        for bytes in writes {
            repair.feed(ReadTime::default(), bytes, |_, text| {
                assert!(
                    std::str::from_utf8(text).is_ok(),
                    "a rune was split: {text:?}"
                );
                out.extend_from_slice(text);
            });
        }
        repair.flush(|_, text| out.extend_from_slice(text));
        String::from_utf8(out).unwrap()
    }

    /// STAGE-29
    #[test]
    fn each_invalid_byte_becomes_its_own_replacement() {
        for (writes, expected) in [
            (
                &[&b"hello a\xfeb a\xffb\n"[..]][..],
                "hello a\u{FFFD}b a\u{FFFD}b\n",
            ),
            (&[b"\xf0\x9f", b"\x90\xa4"], "🐤"),
            (&[b"\xf0", b"\x9f", b"\x90", b"\xa4"], "🐤"),
            (&[b"\xf0\x9f"], "\u{FFFD}\u{FFFD}"),
            (&[b"\xf0\x9f\x98"], "\u{FFFD}\u{FFFD}\u{FFFD}"),
            (&[b"\xf0\x9f\x98x"], "\u{FFFD}\u{FFFD}\u{FFFD}x"),
            (&[b"\xf0\x9f", b"\x98", b"x"], "\u{FFFD}\u{FFFD}\u{FFFD}x"),
            (&[b"\xf0\x9f", b"\xc3", b"\xa9"], "\u{FFFD}\u{FFFD}é"),
            (&[b"\xed\xa0\x80"], "\u{FFFD}\u{FFFD}\u{FFFD}"),
            (&[b"\xc0\xaf"], "\u{FFFD}\u{FFFD}"),
            (&[b"\xf4\x90\x80\x80"], "\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}"),
            (&[b"a\x80", b"\x80b"], "a\u{FFFD}\u{FFFD}b"),
        ] {
            assert_eq!(repair(writes), expected, "{writes:?}");
        }
    }

    /// STAGE-29
    #[test]
    fn an_unfinished_rune_waits_and_keeps_its_time() {
        let (first, second) = (ReadTime::from_unix(1, 0), ReadTime::from_unix(2, 0));
        let (mut repair, mut seen) = (Repair::default(), Vec::new());
        repair.feed(first, b"a\xc3", |at, text| seen.push((at, text.to_vec())));
        assert_eq!(seen, [(first, b"a".to_vec())]);
        repair.feed(second, b"\xa9b", |at, text| seen.push((at, text.to_vec())));
        assert_eq!(seen[1..], [(first, "é".into()), (second, b"b".to_vec())]);
    }

    proptest! {
        /// STAGE-29
        #[test]
        fn any_split_repairs_to_the_same(
            bytes in proptest::collection::vec(
                prop_oneof![any::<u8>(), 0x80_u8..0xc0, Just(0xf0), Just(0xe2), Just(b'a')], 0..60),
            split in 1_usize..7,
        ) {
            let writes: Vec<&[u8]> = bytes.chunks(split).collect();
            // One U+FFFD a byte, by the definition: what starts no valid rune is replaced alone.
            let (mut expected, mut rest) = (String::new(), &bytes[..]);
            while !rest.is_empty() {
                let rune = (1..=rest.len().min(4)).find(|&n| std::str::from_utf8(&rest[..n]).is_ok());
                expected.push_str(rune.map_or("\u{FFFD}", |n| std::str::from_utf8(&rest[..n]).unwrap()));
                rest = &rest[rune.unwrap_or(1)..];
            }
            prop_assert_eq!(repair(&writes), expected);
        }
    }
}
