use std::collections::VecDeque;

use crate::ReadTime;
use crate::sink::Sink;

/// How many different times of reading are told apart in held bytes; later ones count as the last.
const MAX_MARKS: usize = 1024;

/// Bytes that were read and not passed on, with when each was read.
///
/// Positions count a stream's bytes from its start.
#[derive(Debug, Default)]
pub(crate) struct Held {
    bytes: Vec<u8>,
    /// How many at the front of `bytes` were passed on and only wait to be cut off.
    gone: usize,
    /// Position of the first byte not passed on.
    base: u64,
    /// From which position on bytes were read when; the first is at or before `base`.
    marks: VecDeque<(u64, ReadTime)>,
}

/// Held bytes followed by those of the write at hand.
pub(crate) struct Window<'a> {
    held: &'a mut Held,
    chunk: &'a [u8],
    at: ReadTime,
    /// Position of the chunk's first byte.
    chunk_from: u64,
}

impl Held {
    /// Position of the first byte that was not passed on.
    #[cfg(test)]
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.gone
    }

    /// Puts a write's bytes behind the held ones. [`Window::close`] keeps what was not passed on.
    pub(crate) fn open<'a>(&'a mut self, at: ReadTime, chunk: &'a [u8]) -> Window<'a> {
        let chunk_from = self.base + self.len() as u64;
        Window {
            held: self,
            chunk,
            at,
            chunk_from,
        }
    }

    /// Everything held, in pieces that were read at one time; nothing is held any more.
    pub(crate) fn take(&mut self) -> Vec<(ReadTime, Vec<u8>)> {
        let mut pieces = Vec::new();
        let end = self.base + self.len() as u64;
        while self.base < end {
            let (at, to) = self.piece(end);
            pieces.push((at, self.slice(self.base, to).to_vec()));
            self.base = to;
        }
        self.bytes.clear();
        self.gone = 0;
        self.marks.clear();
        pieces
    }

    /// When the byte at `base` was read, and where the bytes read then end, at most at `to`.
    fn piece(&self, to: u64) -> (ReadTime, u64) {
        let mut at = ReadTime::default();
        for &(from, time) in &self.marks {
            if from > self.base {
                return (at, from.min(to));
            }
            at = time;
        }
        (at, to)
    }

    fn slice(&self, from: u64, to: u64) -> &[u8] {
        let first = self.base - self.gone as u64;
        part(
            &self.bytes,
            from.saturating_sub(first),
            to.saturating_sub(first),
        )
    }

    fn keep(&mut self, chunk: &[u8], chunk_from: u64, at: ReadTime) {
        if self.gone == self.bytes.len() {
            self.bytes.clear();
            self.gone = 0;
            self.marks.clear();
        } else if self.gone * 2 >= self.bytes.len() {
            self.bytes.drain(..self.gone);
            self.gone = 0;
        }
        while self
            .marks
            .get(1)
            .is_some_and(|&(from, _)| from <= self.base)
        {
            self.marks.pop_front();
        }
        let from = self.base.max(chunk_from);
        let rest = part(chunk, from - chunk_from, chunk.len() as u64);
        if rest.is_empty() {
            return;
        }
        self.bytes.extend_from_slice(rest);
        let same = self.marks.back().is_some_and(|&(_, time)| time == at);
        if !same && self.marks.len() < MAX_MARKS {
            self.marks.push_back((from, at));
        }
    }
}

impl<'a> Window<'a> {
    /// The write at hand.
    pub(crate) fn chunk(&self) -> &'a [u8] {
        self.chunk
    }

    /// Position of the write's first byte.
    pub(crate) fn chunk_from(&self) -> u64 {
        self.chunk_from
    }

    /// Position behind the write's last byte.
    pub(crate) fn end(&self) -> u64 {
        self.chunk_from + self.chunk.len() as u64
    }

    /// Position of the first byte that was not passed on.
    pub(crate) fn base(&self) -> u64 {
        self.held.base
    }

    /// Passes on the bytes up to position `to` as they are.
    pub(crate) fn pass(&mut self, to: u64, sink: &mut impl Sink) {
        let held_to = to.min(self.chunk_from);
        while self.held.base < held_to {
            let (at, piece_to) = self.held.piece(held_to);
            sink.text(at, self.held.slice(self.held.base, piece_to));
            self.advance(piece_to);
        }
        if self.held.base < to {
            let from = self.held.base - self.chunk_from;
            sink.text(self.at, part(self.chunk, from, to - self.chunk_from));
            self.advance(to);
        }
    }

    /// Passes on a mask in place of the bytes up to position `to`.
    pub(crate) fn mask(&mut self, to: u64, sink: &mut impl Sink) {
        let in_chunk = self.held.base >= self.chunk_from;
        sink.mask(if in_chunk {
            self.at
        } else {
            self.held.piece(to).0
        });
        self.advance(to);
    }

    fn advance(&mut self, to: u64) {
        let held_to = to.min(self.chunk_from).max(self.held.base);
        let gone = usize::try_from(held_to - self.held.base).unwrap_or(usize::MAX);
        self.held.gone = self
            .held
            .gone
            .saturating_add(gone)
            .min(self.held.bytes.len());
        self.held.base = to.max(self.held.base);
    }

    /// Keeps what was not passed on.
    pub(crate) fn close(self) {
        self.held.keep(self.chunk, self.chunk_from, self.at);
    }
}

/// The part of `bytes` between two offsets, cut to what there is.
fn part(bytes: &[u8], from: u64, to: u64) -> &[u8] {
    let offset = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    bytes.get(offset(from)..offset(to)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Kept;

    fn time(secs: u64) -> ReadTime {
        ReadTime::from_unix(secs, 0)
    }

    /// DISP-46
    #[test]
    fn held_bytes_keep_the_time_they_were_read() {
        let (mut held, mut kept) = (Held::default(), Kept::default());
        held.open(time(1), b"ab").close();
        held.open(time(2), b"cd").close();
        let mut window = held.open(time(3), b"ef");
        window.pass(1, &mut kept);
        window.mask(3, &mut kept);
        window.pass(5, &mut kept);
        window.close();
        assert_eq!(kept.string(), "a[MASKED]de");
        assert_eq!(kept.times[0], time(1));
        assert_eq!(kept.times[1], time(1));
        assert_eq!(kept.times[9..], [time(2), time(3)]);
        assert_eq!(held.take(), [(time(3), b"f".to_vec())]);
        assert_eq!(held.base(), 6);
    }

    #[test]
    fn marks_are_bounded() {
        let mut held = Held::default();
        for second in 0..5000 {
            held.open(time(second), b"x").close();
        }
        assert_eq!(held.marks.len(), MAX_MARKS);
        let pieces = held.take();
        assert_eq!(pieces.len(), MAX_MARKS);
        assert_eq!(
            pieces.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(),
            5000
        );
    }

    #[test]
    fn what_was_passed_on_is_given_back_to_the_allocator() {
        let (mut held, mut kept) = (Held::default(), Kept::default());
        held.open(time(1), &[b'x'; 100]).close();
        for to in 1..10_000 {
            let mut window = held.open(time(1), b"x");
            window.pass(to, &mut kept);
            window.close();
        }
        assert!(held.bytes.len() <= 201, "{} bytes", held.bytes.len());
        assert_eq!(kept.bytes.len(), 9_999);
    }
}
