//! An output that takes so many bytes and no more.

use std::cell::Cell;
use std::io::{self, Seek, SeekFrom, Write};

/// The output, and whether it was given more than it takes: an error alone would not come through
/// every writer in between as what it is.
pub(super) struct Capped<'a, F> {
    to: F,
    at: u64,
    length: u64,
    cap: u64,
    over: &'a Cell<bool>,
}

impl<'a, F> Capped<'a, F> {
    /// Nothing was written to it yet.
    pub(super) fn new(to: F, cap: u64, over: &'a Cell<bool>) -> Capped<'a, F> {
        Capped {
            to,
            at: 0,
            length: 0,
            cap,
            over,
        }
    }

    /// Bytes that it has.
    pub(super) fn length(&self) -> u64 {
        self.length
    }
}

impl<F: Write> Write for Capped<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.over.get() {
            // A writer that is dropped tries to close its archive, and complains where it cannot.
            return Ok(bytes.len());
        }
        if self.at.saturating_add(bytes.len() as u64) > self.cap {
            self.over.set(true);
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let written = self.to.write(bytes)?;
        self.at += written as u64;
        self.length = self.length.max(self.at);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<F: Seek> Seek for Capped<'_, F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.to.seek(to)?;
        Ok(self.at)
    }
}
