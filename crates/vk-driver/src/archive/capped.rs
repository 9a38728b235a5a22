//! A file that takes so many bytes and no more.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// The file, and whether it was given more than it takes: an error alone would not come through
/// every writer in between as what it is.
pub(super) struct Capped<'a> {
    file: File,
    at: u64,
    cap: u64,
    over: &'a Cell<bool>,
}

impl<'a> Capped<'a> {
    /// An empty file.
    pub(super) fn new(file: File, cap: u64, over: &'a Cell<bool>) -> Capped<'a> {
        Capped {
            file,
            at: 0,
            cap,
            over,
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Write for Capped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.over.get() {
            // A writer that is dropped tries to close its archive, and complains where it cannot.
            return Ok(bytes.len());
        }
        if self.at.saturating_add(bytes.len() as u64) > self.cap {
            self.over.set(true);
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let written = self.file.write(bytes)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Capped<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.file.seek(to)?;
        Ok(self.at)
    }
}
