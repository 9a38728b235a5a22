//! Locks between processes: on files, released by the kernel whatever happens to the holder.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::Error;

/// A lock held until this is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would not do: a child that another thread has forked and that has not come to
        // its exec holds the file too.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Lock {
    /// Waits for the lock alone. Only for locks that nobody holds for long.
    pub(crate) fn exclusive(path: &Path) -> Result<Self, Error> {
        take(path, FlockOperation::LockExclusive).map_err(Error::file("locking", path))
    }

    /// Waits for a share of the lock.
    pub(crate) fn shared(path: &Path) -> Result<Self, Error> {
        take(path, FlockOperation::LockShared).map_err(Error::file("locking", path))
    }

    /// The lock alone, if it is free now.
    pub(crate) fn try_exclusive(path: &Path) -> Result<Option<Self>, Error> {
        match take(path, FlockOperation::NonBlockingLockExclusive) {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Error::file("locking", path)(error)),
        }
    }
}

fn take(path: &Path, operation: FlockOperation) -> io::Result<Lock> {
    let mut options = OpenOptions::new();
    options
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600);
    let file = options.open(path)?;
    loop {
        match flock(&file, operation) {
            Ok(()) => return Ok(Lock { file }),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_dropped_is_free_although_a_fork_still_holds_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::exclusive(&path).unwrap();
        let _fork = held.file.try_clone().unwrap();
        assert!(Lock::try_exclusive(&path).unwrap().is_none(), "it is held");
        drop(held);
        assert!(Lock::try_exclusive(&path).unwrap().is_some(), "it is free");
    }
}
