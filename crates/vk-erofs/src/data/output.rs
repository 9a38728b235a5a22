//! The image being written: blocks handed out in order, gaps left as holes of the host's file.

use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use crate::disk::BLOCK;
use crate::error::Error;

/// An image under construction. What is never written reads back as zeros, as in any new file.
pub(crate) struct Output<W: Write> {
    file: BufWriter<W>,
    at: u64,
    next_block: u64,
    limit: u64,
}

impl<W: Write + Seek> Output<W> {
    pub(crate) fn new(file: W, limit: u64) -> Self {
        // The first block is the superblock's.
        Self {
            file: BufWriter::with_capacity(128 << 10, file),
            at: 0,
            next_block: 1,
            limit,
        }
    }

    /// Takes `blocks` consecutive blocks and gives the first.
    pub(crate) fn allocate(&mut self, blocks: u64, entry: u64) -> Result<u32, Error> {
        let first = self.next_block;
        let end = first.saturating_add(blocks);
        let limit = self.limit.min(u64::from(u32::MAX - 1) * BLOCK);
        if end > limit / BLOCK {
            return Err(Error::Limit {
                entry,
                what: "bytes of the image are",
                limit,
            });
        }
        self.next_block = end;
        u32::try_from(first).map_err(|_| Error::Limit {
            entry,
            what: "blocks of the image are",
            limit,
        })
    }

    pub(crate) fn next_block(&self) -> u64 {
        self.next_block
    }

    pub(crate) fn write_at(&mut self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.move_to(position)?;
        self.file.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn move_to(&mut self, position: u64) -> io::Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        match position.checked_sub(self.at) {
            Some(0) => {}
            // The rest of a block: cheaper than to flush and seek.
            Some(gap) if gap < BLOCK => {
                let gap = usize::try_from(gap).unwrap_or(0);
                self.file.write_all(ZEROS.get(..gap).unwrap_or_default())?;
            }
            _ => {
                self.file.seek(SeekFrom::Start(position))?;
            }
        }
        self.at = position;
        Ok(())
    }

    /// Hands the file back, everything written to it.
    pub(crate) fn into_inner(mut self) -> io::Result<W> {
        self.file.flush()?;
        self.file
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
    }
}
