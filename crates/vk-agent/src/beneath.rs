//! A directory that nothing is read or written outside of, whatever symlinks lie in it (GUEST-09).

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::root::{Owner, make_dir};

/// The directory.
#[derive(Debug)]
pub(crate) struct Beneath {
    dir: OwnedFd,
}

impl Beneath {
    pub(crate) fn new(dir: OwnedFd) -> Self {
        Self { dir }
    }

    /// Opens a relative path; symlinks on the way are followed as long as they stay inside, one at
    /// its end is not. What would leave the directory is `XDEV`.
    pub(crate) fn open(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let rules = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat2(
            &self.dir,
            if path.is_empty() { b"." } else { path },
            flags,
            Mode::empty(),
            rules,
        )
    }

    /// Opens a directory, followed through symlinks that stay inside.
    pub(crate) fn open_dir(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let rules = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(
            &self.dir,
            if path.is_empty() { b"." } else { path },
            flags,
            Mode::empty(),
            rules,
        )
    }

    /// A directory, made with its parents as far as they are missing.
    pub(crate) fn make_dirs(&self, path: &[u8], mode: u32, owner: Owner) -> Result<OwnedFd, Errno> {
        match self.open_dir(path) {
            Err(Errno::NOENT) => {}
            result => return result,
        }
        let mut dir = self.open_dir(b"")?;
        let mut at = Vec::with_capacity(path.len());
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            if !at.is_empty() {
                at.push(b'/');
            }
            at.extend_from_slice(name);
            dir = match self.open_dir(&at) {
                Err(Errno::NOENT) => {
                    make_dir(&dir, name, mode, owner)?;
                    self.open_dir(&at)?
                }
                result => result?,
            };
        }
        Ok(dir)
    }
}

impl AsFd for Beneath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}
