//! The lock of a mirror, of a project's LFS files or of a kept tree.
//!
//! Whoever has it may change what it is for, and so may each git that works for them: these have the
//! lock's descriptor, too. A job's process that is killed, or gives up, leaves the lock to the gits it
//! started until the last of them is gone: nobody else begins while one still writes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::host::GitError;

/// How often it is looked whether another job is done.
const WAIT: Duration = Duration::from_millis(100);

/// The lock, for as long as it or a clone of it is kept.
#[derive(Clone, Debug)]
pub(super) struct Lock(Arc<Held>);

/// A lock for whom it is enough to have it while somebody else keeps it.
#[derive(Clone, Debug)]
pub(super) struct Shared(Weak<Held>);

#[derive(Debug)]
struct Held {
    file: File,
    /// A git under it was killed, and is perhaps not gone yet.
    left: AtomicBool,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.left.load(Ordering::Relaxed) {
            // It is free as soon as nobody has the file.
            return;
        }
        // Closing alone would not do: a child that another thread has forked and that has not come to
        // its exec holds the file too.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Waits for the lock; the job's own timeout bounds the wait.
    pub(super) async fn take(path: &Path) -> Result<Lock, GitError> {
        loop {
            match Lock::try_take(path)? {
                Some(lock) => return Ok(lock),
                None => tokio::time::sleep(WAIT).await,
            }
        }
    }

    /// Waits for the lock no longer than this.
    pub(super) async fn take_within(path: &Path, most: Duration) -> Result<Option<Lock>, GitError> {
        match tokio::time::timeout(most, Lock::take(path)).await {
            Ok(taken) => taken.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Takes it unless another has it.
    pub(super) fn try_take(path: &Path) -> Result<Option<Lock>, GitError> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(GitError::file("make", dir))?;
        }
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true);
        let file = options.open(path).map_err(GitError::file("open", path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(Arc::new(Held {
                file,
                left: AtomicBool::new(false),
            })))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(GitError::file("lock", path)(error)),
        }
    }

    /// For gits that are to run under it as long as it is kept.
    pub(super) fn shared(&self) -> Shared {
        Shared(Arc::downgrade(&self.0))
    }

    /// The file, which has the lock wherever it is given.
    pub(super) fn file(&self) -> std::io::Result<File> {
        self.0.file.try_clone()
    }

    /// A git that has the file was killed, or left behind.
    pub(super) fn leave(&self) {
        self.0.left.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    /// The lock, where it is kept still.
    pub(super) fn get(&self) -> Option<Lock> {
        self.0.upgrade().map(Lock)
    }
}

#[cfg(test)]
mod tests;
