//! Tar streams, read entry by entry within bounds: old, ustar, GNU and PAX.
//!
//! Blocks and fields are those of the `tar` crate; the loop, the extension headers and every bound
//! are ours, since what an archive announces must not decide how much of it is held. Types, sizes
//! and precedence follow what container runtimes do: links, directories and devices have no content
//! whatever their size says, and global PAX headers are read over.

mod entry;
mod field;
mod pax;
mod sparse;

use std::io::{ErrorKind, Read};

use ::tar::Header;

use crate::data::Segments;
use crate::error::{DisplayPath, Error, Fault};
use crate::limits::Limits;
use crate::metadata::{Metadata, Node};

/// Bytes of a tar block.
const BLOCK: usize = 512;

/// One entry with its extension headers taken in.
#[derive(Debug)]
pub struct Entry {
    /// The path as the archive has it.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Mode, owner, time, attributes.
    pub meta: Metadata,
    /// Bytes of a regular file's content, holes included; 0 for all else.
    pub size: u64,
    /// Where a regular file's stored content begins, in bytes from the start of the stream.
    pub data_at: u64,
    /// The data segments of a sparse file: offset and length, checked against the size.
    pub(crate) segments: Option<Segments>,
}

impl Entry {
    /// Whether the content is stored as it is, without a sparse map.
    pub fn is_whole(&self) -> bool {
        self.segments.is_none()
    }
}

/// The type of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A hard link to the entry of this path.
    HardLink(Vec<u8>),
    /// A device or a pipe.
    Node(Node),
}

/// A tar stream being read.
pub struct Archive<R> {
    input: R,
    limits: Limits,
    /// Headers so far, counted on from the layers before.
    entries: u64,
    /// Bytes read so far.
    at: u64,
    /// Bytes of the present entry's stored content still unread.
    content: u64,
    /// Bytes after the content up to a whole block.
    padding: u64,
    /// The present entry's path, for messages.
    path: Vec<u8>,
}

impl<R: Read> Archive<R> {
    /// Reads a stream from its start.
    pub fn new(input: R, limits: &Limits) -> Self {
        Self::counting_from(input, limits, 0)
    }

    /// As [`Archive::new`], with this many entries already used up.
    pub(crate) fn counting_from(input: R, limits: &Limits, entries: u64) -> Self {
        Self {
            input,
            limits: limits.clone(),
            entries,
            at: 0,
            content: 0,
            padding: 0,
            path: Vec::new(),
        }
    }

    /// The next entry; what is left of the one before is read over. `None` after the last.
    ///
    /// # Errors
    /// A stream that fails, ends early, is no tar, or goes beyond the limits.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        self.skip_content()?;
        let mut extensions = entry::Extensions::default();
        loop {
            let mut header = Header::new_old();
            if !self.read_block(header.as_mut_bytes())? || is_zero(header.as_bytes()) {
                return if extensions.is_empty() {
                    Ok(None)
                } else {
                    Err(self.truncated("an extension header without its entry"))
                };
            }
            self.count_entry()?;
            self.check_sum(&header)?;
            if !self.take_extension(&header, &mut extensions)? {
                return self.finish_entry(&header, extensions).map(Some);
            }
        }
    }

    /// The stored content of the present entry: the data segments of a sparse file one after the
    /// other, everything of any other.
    pub fn content(&mut self) -> Content<'_, R> {
        Content { archive: self }
    }

    /// The stream, read up to where the archive was.
    pub fn into_inner(self) -> R {
        self.input
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.at
    }

    fn count_entry(&mut self) -> Result<(), Error> {
        self.entries += 1;
        self.path.clear();
        if self.entries > self.limits.entries {
            return Err(self.limit("archive entries are", self.limits.entries));
        }
        Ok(())
    }

    fn check_sum(&self, header: &Header) -> Result<(), Error> {
        let bytes = header.as_bytes();
        let stored =
            field::unsigned(&header.as_old().cksum).ok_or_else(|| self.header("no checksum"))?;
        // The field itself counts as spaces; some old writers summed signed bytes.
        let sum = |value: fn(u8) -> i64| -> i64 {
            let outside = bytes
                .iter()
                .enumerate()
                .filter(|(at, _)| !(148..156).contains(at));
            outside.map(|(_, byte)| value(*byte)).sum::<i64>() + 8 * i64::from(b' ')
        };
        let stored = i64::try_from(stored).unwrap_or(-1);
        if stored != sum(i64::from) && stored != sum(|byte| i64::from(byte.cast_signed())) {
            return Err(self.header("its checksum is wrong"));
        }
        Ok(())
    }

    fn skip_content(&mut self) -> Result<(), Error> {
        let mut left =
            std::mem::take(&mut self.content).saturating_add(std::mem::take(&mut self.padding));
        let mut waste = [0; 16 << 10];
        while left > 0 {
            let take = usize::try_from(left)
                .unwrap_or(waste.len())
                .min(waste.len());
            let read = self.read_some(waste.get_mut(..take).unwrap_or_default())?;
            if read == 0 {
                return Err(self.truncated("a file's content"));
            }
            left -= read as u64;
        }
        Ok(())
    }

    /// Fills one block; false at the end of the stream.
    fn read_block(&mut self, block: &mut [u8]) -> Result<bool, Error> {
        let mut filled = 0;
        while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read_some(rest)? {
                0 if filled == 0 => return Ok(false),
                0 if self.entries == 0 => return Err(self.header("it is shorter than a header")),
                0 => return Err(self.truncated("a header")),
                read => filled += read,
            }
        }
        Ok(true)
    }

    /// Fills one block from the present entry's content.
    fn read_content_block(&mut self, block: &mut [u8; BLOCK]) -> Result<(), Error> {
        let left = self.content.checked_sub(BLOCK as u64);
        self.content = left.ok_or_else(|| self.fault(Fault::SparseMap))?;
        if !self.read_block(block)? {
            return Err(self.truncated("a sparse map"));
        }
        Ok(())
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        loop {
            match self.input.read(buffer) {
                Ok(read) => {
                    self.at += read as u64;
                    if self.at > self.limits.stream_bytes {
                        return Err(self.limit("bytes of the layers are", self.limits.stream_bytes));
                    }
                    return Ok(read);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::Read {
                        entry: self.entries,
                        source,
                    });
                }
            }
        }
    }

    fn fault(&self, fault: Fault) -> Error {
        Error::Entry {
            entry: self.entries,
            path: DisplayPath::new(&self.path),
            fault,
        }
    }

    fn limit(&self, what: &'static str, limit: u64) -> Error {
        Error::Limit {
            entry: self.entries,
            what,
            limit,
        }
    }

    fn header(&self, what: &'static str) -> Error {
        Error::Header {
            entry: self.entries,
            what,
        }
    }

    fn truncated(&self, what: &'static str) -> Error {
        Error::Truncated {
            entry: self.entries,
            what,
        }
    }
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

/// Reads the present entry's stored content and no further.
pub struct Content<'a, R> {
    archive: &'a mut Archive<R>,
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.archive.content).unwrap_or(usize::MAX);
        let take = left.min(buffer.len());
        let Some(part) = buffer.get_mut(..take).filter(|part| !part.is_empty()) else {
            return Ok(0);
        };
        match self.archive.read_some(part) {
            Ok(read) => {
                self.archive.content -= read as u64;
                Ok(read)
            }
            Err(Error::Read { source, .. }) => Err(source),
            Err(error) => Err(std::io::Error::other(error)),
        }
    }
}
