//! A file's content as the archive gives it: its data segments one after the other.

use std::io::{ErrorKind, Read};

use crate::error::Error;

use super::Segments;

/// A content being read, holes filled in.
pub(crate) struct Source<'a, R> {
    reader: &'a mut R,
    entry: u64,
    size: u64,
    /// `None` for a file without a map: one segment, all of it.
    segments: Option<&'a Segments>,
    /// The first segment that does not lie wholly before the reader.
    next: usize,
}

impl<'a, R: Read> Source<'a, R> {
    /// `segments` have been checked against `size`.
    pub(crate) fn new(
        reader: &'a mut R,
        entry: u64,
        size: u64,
        segments: Option<&'a Segments>,
    ) -> Self {
        Self {
            reader,
            entry,
            size,
            segments,
            next: 0,
        }
    }

    pub(crate) fn entry(&self) -> u64 {
        self.entry
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether any segment lies in this range, which is not before the last one read.
    pub(crate) fn has_data(&self, start: u64, length: u64) -> bool {
        let Some(segments) = self.segments else {
            return true;
        };
        segments
            .get(self.next..)
            .unwrap_or_default()
            .iter()
            .take_while(|(offset, _)| *offset < start + length)
            .any(|(offset, length)| offset + length > start)
    }

    /// Fills `window` with the content from `start` on. Ranges are asked for in order.
    pub(crate) fn fill(&mut self, start: u64, window: &mut [u8]) -> Result<(), Error> {
        let Some(segments) = self.segments else {
            return self.read(window);
        };
        window.fill(0);
        let end = start + window.len() as u64;
        while let Some((offset, length)) = segments.get(self.next) {
            if *offset >= end {
                break;
            }
            let from = (*offset).max(start);
            let to = (offset + length).min(end);
            if from < to {
                let place = |position: u64| usize::try_from(position - start).unwrap_or(0);
                if let Some(part) = window.get_mut(place(from)..place(to)) {
                    self.read(part)?;
                }
            }
            if offset + length > end {
                break;
            }
            self.next += 1;
        }
        Ok(())
    }

    fn read(&mut self, part: &mut [u8]) -> Result<(), Error> {
        let entry = self.entry;
        self.reader
            .read_exact(part)
            .map_err(|source| match source.kind() {
                ErrorKind::UnexpectedEof => Error::Truncated {
                    entry,
                    what: "a file's content",
                },
                _ => Error::Read { entry, source },
            })
    }
}
