//! One run at a time in one test root: a second would replace the programs of the first.

use std::fs::{File, TryLockError};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Holds the lock until it is dropped. No child inherits it.
#[derive(Debug)]
pub(super) struct RootLock(File);

impl Drop for RootLock {
    fn drop(&mut self) {
        // Closing alone would not do: a child that another thread has forked and that has not come to
        // its exec holds the file too.
        let _ = self.0.unlock();
    }
}

impl RootLock {
    /// Takes the root's lock, waiting for another run to end.
    pub(super) fn take(root: &Path) -> Result<Self> {
        let path = root.join(".lock");
        let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("waiting for another run in {}", root.display());
                file.lock()
                    .with_context(|| format!("locking {}", path.display()))?;
            }
            Err(TryLockError::Error(error)) => bail!("locking {}: {error}", path.display()),
        }
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_waits_for_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = RootLock::take(dir.path()).unwrap();
        let again = File::open(dir.path().join(".lock")).unwrap();
        assert!(matches!(again.try_lock(), Err(TryLockError::WouldBlock)));
        drop(first);
        let (done, waited) = std::sync::mpsc::channel();
        let root = dir.path().to_path_buf();
        std::thread::spawn(move || done.send(RootLock::take(&root).is_ok()));
        assert!(
            waited
                .recv_timeout(std::time::Duration::from_secs(20))
                .unwrap()
        );
    }
}
