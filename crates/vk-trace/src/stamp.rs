//! Stamps: each line begins with when it was read and on which stream it came (STAGE-27).
//!
//! `YYYY-MM-DDTHH:MM:SS.uuuuuuZ SSxF`: 32 bytes; `SS` the stream in hex, `x` is `O` or `E`, `F` a
//! space, or `+` where the line goes on with the stream's last one.

use memchr::{memchr, memchr_iter};

use crate::ReadTime;
use crate::read_time::RENDERED_LEN;
use crate::sink::{MASK, Sink};

const STAMP_LEN: usize = 32;
/// An unfinished line is let out once it and the write that goes on with it have more bytes than
/// this in sum, its stamp counted.
pub const MAX_HELD_LINE: usize = 8192;

/// One stream's lines.
pub(crate) struct Stamper {
    stamps: bool,
    stamp: [u8; STAMP_LEN],
    stamped: Option<ReadTime>,
    continues: bool,
    /// The unfinished line, with its stamp.
    line: Vec<u8>,
    /// How much of `line` earlier writes left.
    old: usize,
    /// The unfinished line was let out without its line break, since it is too long to wait for it.
    open: bool,
}

/// A stamper with the trace it appends to.
pub(crate) struct StampLink<'a> {
    pub(crate) stamper: &'a mut Stamper,
    pub(crate) out: &'a mut Vec<u8>,
}

impl Sink for StampLink<'_> {
    fn text(&mut self, at: ReadTime, text: &[u8]) {
        if self.stamper.stamps {
            self.stamper.lines(at, text, self.out);
        } else {
            self.out.extend_from_slice(text);
        }
    }

    fn mask(&mut self, at: ReadTime) {
        if self.stamper.open || !self.stamper.stamps {
            self.out.extend_from_slice(MASK);
        } else {
            self.stamper.lines(at, MASK, self.out);
        }
    }
}

impl Stamper {
    /// A stamper for the stream whose stamps end in `label` (`00O`); without `stamps` it passes
    /// everything on as it is.
    pub(crate) fn new(stamps: bool, label: [u8; 3]) -> Self {
        let mut stamp = [b' '; STAMP_LEN];
        for (slot, byte) in stamp.iter_mut().skip(RENDERED_LEN + 1).zip(label) {
            *slot = byte;
        }
        Self {
            stamps,
            stamp,
            stamped: None,
            continues: false,
            line: Vec::new(),
            old: 0,
            open: false,
        }
    }

    fn lines(&mut self, at: ReadTime, text: &[u8], out: &mut Vec<u8>) {
        let mut from = 0;
        if self.open || !self.line.is_empty() {
            let Some(end) = memchr(b'\n', text) else {
                return self.go_on(text, out);
            };
            out.append(&mut self.line);
            (self.old, self.open) = (0, false);
            out.extend_from_slice(text.get(..=end).unwrap_or_default());
            from = end + 1;
        }
        let text = text.get(from..).unwrap_or_default();
        let mut from = 0;
        for end in memchr_iter(b'\n', text) {
            let stamp = self.stamp(at);
            out.extend_from_slice(&stamp);
            out.extend_from_slice(text.get(from..=end).unwrap_or_default());
            from = end + 1;
        }
        let rest = text.get(from..).unwrap_or_default();
        if !rest.is_empty() {
            let stamp = self.stamp(at);
            self.line.extend_from_slice(&stamp);
            self.go_on(rest, out);
        }
    }

    /// More of the unfinished line. Once it is clear that the write's end lets it out, or its own
    /// does, it need not wait for either.
    fn go_on(&mut self, text: &[u8], out: &mut Vec<u8>) {
        if !self.open && self.counted() + text.len() > MAX_HELD_LINE {
            out.append(&mut self.line);
            (self.old, self.open) = (0, true);
        }
        let to = if self.open { out } else { &mut self.line };
        to.extend_from_slice(text);
    }

    /// The unfinished line's length. Its stamp counts only where an earlier write brought it.
    fn counted(&self) -> usize {
        let uncounted = if self.old == 0 { STAMP_LEN } else { 0 };
        self.line.len().saturating_sub(uncounted)
    }

    /// The next line's stamp. Only the first after a break says that it goes on.
    fn stamp(&mut self, at: ReadTime) -> [u8; STAMP_LEN] {
        if self.stamped != Some(at) {
            for (slot, byte) in self.stamp.iter_mut().zip(at.render()) {
                *slot = byte;
            }
            self.stamped = Some(at);
        }
        let mut stamp = self.stamp;
        let [.., flag] = &mut stamp;
        *flag = if std::mem::take(&mut self.continues) {
            b'+'
        } else {
            b' '
        };
        stamp
    }

    /// The end of a write: an unfinished line with `\r` in it, or a long one, does not wait.
    pub(crate) fn end_write(&mut self, out: &mut Vec<u8>) {
        if self.open {
            self.flush(out);
            self.continues = true;
            return;
        }
        if self.line.len() == self.old {
            return;
        }
        let new_from = if self.old == 0 { STAMP_LEN } else { self.old };
        let new = self.line.get(new_from..).unwrap_or_default();
        if memchr(b'\r', new).is_some() {
            self.flush(out);
            self.continues = true;
        }
        self.old = self.line.len();
    }

    /// Lets an unfinished line out, with a line break; what follows is a new line.
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>) {
        if self.open || !self.line.is_empty() {
            out.append(&mut self.line);
            out.push(b'\n');
        }
        (self.old, self.open, self.continues) = (0, false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(writes: impl IntoIterator<Item = Vec<u8>>) -> (Stamper, Vec<u8>) {
        let (mut stamper, mut out) = (Stamper::new(true, *b"01O"), Vec::new());
        for write in writes {
            StampLink {
                stamper: &mut stamper,
                out: &mut out,
            }
            .text(ReadTime::default(), &write);
            stamper.end_write(&mut out);
            assert!(
                stamper.line.len() <= STAMP_LEN + MAX_HELD_LINE,
                "{}",
                stamper.line.len()
            );
            assert!(
                stamper.line.capacity() <= 2 * MAX_HELD_LINE,
                "{}",
                stamper.line.capacity()
            );
        }
        (stamper, out)
    }

    /// STAGE-27
    #[test]
    fn a_line_without_end_is_held_in_bounded_memory() {
        let (stamper, out) = written((0..50_000).map(|_| vec![b'x']));
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 6);
        assert!(stamper.line.len() > STAMP_LEN);
        written([
            vec![b'x'; 1 << 20],
            vec![b'y'; 10],
            [vec![b'z'; 1 << 20], vec![b'\n']].concat(),
        ]);
    }
}
