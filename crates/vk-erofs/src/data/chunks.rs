//! Which chunks of a file are where, in as few and as large chunks as its holes allow.

use super::{Content, WINDOW};
use crate::disk::{BLOCK_BITS, MAX_CHUNK_BITS};

/// Chunks of one file at most: a map of 256 KiB.
const CHUNKS_MAX: u64 = 1 << 16;

/// Chunks that follow each other, in consecutive blocks or all holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// How many.
    pub(crate) chunks: u32,
    /// The first one's first block, or a hole.
    pub(crate) block: Option<u32>,
}

/// A file's chunks as they are stored.
pub(super) struct ChunkMap {
    size: u64,
    chunk_bits: u32,
    runs: Vec<Run>,
    /// The block after the last run's last, while it has data.
    next_block: Option<u64>,
}

impl ChunkMap {
    pub(super) fn new(size: u64) -> Self {
        let mut chunk_bits = WINDOW.trailing_zeros();
        while size.div_ceil(1 << chunk_bits) > CHUNKS_MAX {
            chunk_bits += 1;
        }
        Self {
            size,
            chunk_bits,
            runs: Vec::new(),
            next_block: None,
        }
    }

    pub(super) fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_bits
    }

    /// The next chunk, of this many blocks when it has data.
    pub(super) fn push(&mut self, block: Option<u32>, blocks: u64) {
        let follows = match block {
            Some(block) => self.next_block == Some(u64::from(block)),
            None => self.next_block.is_none(),
        };
        self.next_block = block.map(|block| u64::from(block) + blocks);
        match self.runs.last_mut() {
            Some(run) if follows => run.chunks += 1,
            _ => self.runs.push(Run { chunks: 1, block }),
        }
    }

    /// A file without holes is flat; else chunks grow to the largest size at which every run still
    /// is a whole number of them (but the last, which the file's end may cut).
    pub(super) fn into_content(mut self) -> Content {
        if let [
            Run {
                block: Some(block), ..
            },
        ] = *self.runs.as_slice()
        {
            return Content::Flat {
                block,
                size: self.size,
            };
        }
        while self.can_double() {
            self.chunk_bits += 1;
            for run in &mut self.runs {
                run.chunks = run.chunks.div_ceil(2);
            }
        }
        let runs = self.runs.into_boxed_slice();
        Content::Chunked {
            size: self.size,
            chunk_bits: self.chunk_bits,
            runs,
        }
    }

    fn can_double(&self) -> bool {
        let but_last = self
            .runs
            .split_last()
            .map(|(_, others)| others)
            .unwrap_or_default();
        self.chunk_bits < BLOCK_BITS + MAX_CHUNK_BITS
            && self.size > self.chunk_bytes()
            && but_last.iter().all(|run| run.chunks.is_multiple_of(2))
    }
}
