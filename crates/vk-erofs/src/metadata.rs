//! What an inode carries besides its content.

use std::collections::BTreeMap;

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00:00 UTC; negative before it.
    pub secs: i64,
    /// Nanoseconds after `secs`, below 1,000,000,000.
    pub nanos: u32,
}

/// Mode, owner, time and extended attributes of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Permission bits with setuid, setgid and sticky; other bits are ignored.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change of the content.
    pub mtime: Timestamp,
    /// Extended attributes by their full name, `security.capability` say. Those that EROFS has no
    /// name space for and those that steer overlayfs are left out and counted
    /// ([`Summary::dropped_xattrs`](crate::Summary::dropped_xattrs)).
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Metadata {
    /// A root-owned inode of this mode from 1970-01-01.
    pub fn with_mode(mode: u16) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }

    /// Bytes of memory this holds besides itself, roughly.
    pub(crate) fn weight(&self) -> u64 {
        let of_one = |(name, value): (&Vec<u8>, &Vec<u8>)| (name.len() + value.len() + 64) as u64;
        self.xattrs.iter().map(of_one).sum()
    }
}

/// An inode that has no content and is no directory or link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A character device.
    Char {
        /// Below 4096.
        major: u32,
        /// Below 1,048,576.
        minor: u32,
    },
    /// A block device.
    Block {
        /// Below 4096.
        major: u32,
        /// Below 1,048,576.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
}
