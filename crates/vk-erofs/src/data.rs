//! The data area: file contents go to the image as they arrive, holes do not.

mod chunks;
mod output;
mod source;

use std::io::{Read, Seek, Write};

use crate::disk::BLOCK;
use crate::error::{Error, Fault};
use crate::limits::Limits;
use chunks::ChunkMap;
pub(crate) use output::Output;
pub(crate) use source::Source;

pub(crate) use chunks::Run;

/// Where a file's content is.
pub(crate) enum Content {
    /// Beside the inode; empty for an empty file.
    Inline(Box<[u8]>),
    /// In consecutive blocks.
    Flat {
        /// The first block.
        block: u32,
        /// Bytes.
        size: u64,
    },
    /// In chunks, some of them holes.
    Chunked {
        /// Bytes.
        size: u64,
        /// Power of two of a chunk's bytes.
        chunk_bits: u32,
        /// All chunks in order.
        runs: Box<[Run]>,
    },
}

impl Content {
    /// Bytes of memory this holds.
    pub(crate) fn weight(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Flat { .. } => 0,
            Self::Chunked { runs, .. } => (runs.len() * size_of::<Run>()) as u64,
        }
    }
}

/// Files up to this size stand beside their inode, as long as [`INLINE_TOTAL`] lasts: one read
/// instead of two, and no half-empty block.
const INLINE_MAX: u64 = 2048;

/// Bytes of inline content held in memory until the inodes are written.
const INLINE_TOTAL: u64 = 64 << 20;

/// Bytes looked at together for being zero; a hole is a chunk of at least this size.
const WINDOW: usize = 64 << 10;

/// Writes file contents to the image.
pub(crate) struct DataArea<W: Write> {
    output: Output<W>,
    inline_left: u64,
    window: Box<[u8]>,
}

impl<W: Write + Seek> DataArea<W> {
    /// Begins after the block that will hold the superblock.
    pub(crate) fn new(output: W, limits: &Limits) -> Self {
        Self {
            output: Output::new(output, limits.image_bytes),
            inline_left: INLINE_TOTAL,
            window: vec![0; WINDOW].into_boxed_slice(),
        }
    }

    /// The output, for directories and inodes to follow.
    pub(crate) fn into_output(self) -> Output<W> {
        self.output
    }

    /// Reads a file's content from `source` and puts it where it belongs.
    pub(crate) fn store<R: Read>(&mut self, source: &mut Source<'_, R>) -> Result<Content, Error> {
        let size = source.size();
        if size <= INLINE_MAX && size <= self.inline_left {
            self.inline_left -= size;
            return self.store_inline(source);
        }
        self.store_blocks(source)
    }

    fn store_inline<R: Read>(&mut self, source: &mut Source<'_, R>) -> Result<Content, Error> {
        let mut bytes = vec![0; usize::try_from(source.size()).unwrap_or(0)];
        source.fill(0, &mut bytes)?;
        Ok(Content::Inline(bytes.into_boxed_slice()))
    }

    fn store_blocks<R: Read>(&mut self, source: &mut Source<'_, R>) -> Result<Content, Error> {
        let size = source.size();
        let mut map = ChunkMap::new(size);
        let chunk = map.chunk_bytes();
        let mut start = 0;
        while start < size {
            let length = chunk.min(size - start);
            let block = if source.has_data(start, length) {
                self.store_chunk(source, start, length)?
            } else {
                None
            };
            map.push(block, length.div_ceil(BLOCK));
            start += length;
        }
        Ok(map.into_content())
    }

    /// One chunk; nothing is written and no block taken for one of zeros alone.
    fn store_chunk<R: Read>(
        &mut self,
        source: &mut Source<'_, R>,
        start: u64,
        length: u64,
    ) -> Result<Option<u32>, Error> {
        let mut block = None;
        let mut done = 0;
        while done < length {
            let take = usize::try_from(length - done).unwrap_or(WINDOW).min(WINDOW);
            let Some(window) = self.window.get_mut(..take) else {
                break;
            };
            source.fill(start + done, window)?;
            if !is_zero(window) {
                let at = match block {
                    Some(block) => block,
                    None => self
                        .output
                        .allocate(length.div_ceil(BLOCK), source.entry())?,
                };
                block = Some(at);
                self.output.write_at(u64::from(at) * BLOCK + done, window)?;
            }
            done += take as u64;
        }
        Ok(block)
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes
        .chunks(ZEROS.len())
        .all(|part| ZEROS.get(..part.len()) == Some(part))
}

/// Data segments of a sparse file: offset and length, in order, within the size.
pub(crate) type Segments = Vec<(u64, u64)>;

/// Checks that segments are in order, do not overlap and stay within `size`; gives their bytes.
pub(crate) fn check_segments(segments: &Segments, size: u64) -> Result<u64, Fault> {
    let mut end = 0u64;
    let mut total = 0u64;
    for (offset, length) in segments {
        let next = offset.checked_add(*length).ok_or(Fault::SparseMap)?;
        if *offset < end || next > size {
            return Err(Fault::SparseMap);
        }
        end = next;
        total += length;
    }
    Ok(total)
}
