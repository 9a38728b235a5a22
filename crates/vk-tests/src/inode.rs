//! An inode as it is told: one line of JSON, bytes as hexadecimal digits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All that an inode is, wherever it lies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// Type and permission bits, with setuid, setgid and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of content, or of a symlink's target; 0 of all else, where file systems differ.
    pub size: u64,
    /// Seconds since 1970 and nanoseconds after them.
    pub mtime: (i64, u32),
    /// Names in the tree; of a directory, 2 and its subdirectories.
    pub nlink: u64,
    /// Major and minor number of a device, else 0.
    pub rdev: (u32, u32),
    /// Extended attributes: name and value, in hexadecimal digits.
    pub xattrs: BTreeMap<String, String>,
    /// Where a symlink leads, in hexadecimal digits.
    pub target: String,
    /// What [`crate::content::digest`] says of a regular file; empty of all else.
    pub content: String,
}

/// An inode found in a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Its path below the tree's root, without a leading slash, in hexadecimal digits.
    pub path: String,
    /// Device and inode number: the same for all names of one inode, and for no other.
    pub identity: (u64, u64),
    /// What it is.
    pub inode: Inode,
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from hexadecimal digits; `None` for anything else.
#[must_use]
pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let digits = std::str::from_utf8(pair).ok().filter(|of| of.len() == 2)?;
        u8::from_str_radix(digits, 16).ok()
    };
    pairs.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_and_read_back() {
        assert_eq!(hex(&[0, 0xa5, 0xff]), "00a5ff");
        assert_eq!(unhex("00a5ff"), Some(vec![0, 0xa5, 0xff]));
        assert_eq!((unhex("0"), unhex("0g")), (None, None));
    }
}
