//! What is known of a file that may be stored.

use rustix::fs::{AtFlags, FileType, Stat, statat};
use rustix::io::Errno;

use crate::beneath::Beneath;

/// A file's metadata, as it was when it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) kind: FileType,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: i64,
    pub(super) size: u64,
}

impl Meta {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime: stat.st_mtime,
            size: u64::try_from(stat.st_size).unwrap_or(0),
        }
    }

    /// What lies at a path below the root; a symlink at its end is itself.
    pub(super) fn at(root: &Beneath, path: &[u8]) -> Result<Self, Errno> {
        let fd = root.open(path, rustix::fs::OFlags::PATH)?;
        Ok(Self::of(&rustix::fs::fstat(fd)?))
    }

    /// A name in a directory.
    pub(super) fn in_dir(dir: impl rustix::fd::AsFd, name: &[u8]) -> Result<Self, Errno> {
        Ok(Self::of(&statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }
}
