//! What can go wrong while an image is built.

use std::fmt;
use std::io;

/// Why no image was made. Entries are counted from 1 over all layers, headers included.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input failed.
    #[error("reading the archive failed at entry {entry}")]
    Read {
        /// Where.
        entry: u64,
        /// Why.
        source: io::Error,
    },
    /// The output failed; a full disk shows here.
    #[error("writing the image failed")]
    Write {
        /// Why.
        #[from]
        source: io::Error,
    },
    /// The input ends early.
    #[error(
        "the archive ends in the middle of entry {entry} ({what}): it is cut short, fetch or make it again"
    )]
    Truncated {
        /// Where.
        entry: u64,
        /// What was being read.
        what: &'static str,
    },
    /// The input is not a tar stream, or a damaged one.
    #[error("entry {entry} is not valid tar ({what}): the file is no tar archive or is damaged")]
    Header {
        /// Where.
        entry: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// An entry that cannot stand in an image.
    #[error("entry {entry} ({path}): {fault}")]
    Entry {
        /// Where.
        entry: u64,
        /// The entry's path, escaped and cut for display.
        path: DisplayPath,
        /// What is wrong.
        fault: Fault,
    },
    /// A bound of [`Limits`](crate::Limits).
    #[error("entry {entry}: {what} above the limit of {limit}")]
    Limit {
        /// Where.
        entry: u64,
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
}

/// What is wrong with one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A name with a zero byte, or none at all where one is needed.
    #[error("the name is empty or has a zero byte")]
    Name,
    /// A component of more than 255 bytes.
    #[error("a name is longer than 255 bytes")]
    NameTooLong,
    /// A path or target above [`Limits::path_bytes`](crate::Limits::path_bytes).
    #[error("a path is too long")]
    PathTooLong,
    /// A way through too many directories.
    #[error("too many directories on the way")]
    Depth,
    /// Symbolic links that lead in a circle, or too many.
    #[error("too many symbolic links on the way")]
    Loop,
    /// A way through something that is no directory.
    #[error("something on the way is no directory")]
    NotADirectory,
    /// A hard link to what is not there.
    #[error("the target of the hard link does not exist")]
    LinkTarget,
    /// A hard link to a directory.
    #[error("the target of the hard link is a directory")]
    LinkToDirectory,
    /// The root replaced or removed.
    #[error("the root directory can only be a directory")]
    Root,
    /// A whiteout that names no entry of its own directory.
    #[error("the whiteout names nothing in its directory")]
    Whiteout,
    /// A type that no image can hold.
    #[error("an entry type that images cannot hold: {0:#04x}")]
    Type(u8),
    /// An owner that is no 32-bit number.
    #[error("an owner or group is no number below 4294967296")]
    Owner,
    /// A device number out of Linux' range.
    #[error("a device number is out of range")]
    Device,
    /// A time that is no number.
    #[error("the modification time is no number")]
    Time,
    /// A size that is no number.
    #[error("the size is no number")]
    Size,
    /// A PAX record that does not parse.
    #[error("a PAX record is malformed")]
    Pax,
    /// A sparse map that is out of order, overlaps or leaves the file.
    #[error("the sparse map is malformed")]
    SparseMap,
    /// An attribute that cannot be stored.
    #[error("an extended attribute has an empty name, or a name or value that is too long")]
    Xattr,
}

/// A path as it may be shown: escaped, and cut after 200 characters.
#[derive(Clone, PartialEq, Eq)]
pub struct DisplayPath(String);

impl DisplayPath {
    pub(crate) fn new(path: &[u8]) -> Self {
        let shown = path.get(..200).unwrap_or(path);
        let mut text = format!("\"{}\"", shown.escape_ascii());
        if shown.len() < path.len() {
            text.push('…');
        }
        Self(text)
    }
}

impl fmt::Display for DisplayPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DisplayPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
