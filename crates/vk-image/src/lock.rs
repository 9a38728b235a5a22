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
    _file: File,
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
            Ok(()) => return Ok(Lock { _file: file }),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
