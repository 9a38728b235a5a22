//! One run at a time in one test root, where a second would replace the programs of the first, and
//! one as one user, where each would end the other's processes.

use std::fs::{File, TryLockError};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Holds a lock until it is dropped. No child inherits it.
#[derive(Debug)]
pub(super) struct RunLock(#[expect(dead_code, reason = "held, never read")] File);

impl RunLock {
    /// The lock of a test root.
    pub(super) fn of_root(root: &Path) -> Result<Self> {
        Self::take(&root.join(".lock"))
    }

    /// The lock of the user that a run by root runs as.
    pub(super) fn of_user(name: &str) -> Result<Self> {
        Self::take(&Path::new("/run").join(format!("{name}-run.lock")))
    }

    /// Takes a lock, waiting for another run to end.
    fn take(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("making {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("waiting for another run, which holds {}", path.display());
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
        let first = RunLock::of_root(dir.path()).unwrap();
        let again = File::open(dir.path().join(".lock")).unwrap();
        assert!(matches!(again.try_lock(), Err(TryLockError::WouldBlock)));
        drop(first);
        let (done, waited) = std::sync::mpsc::channel();
        let root = dir.path().to_path_buf();
        std::thread::spawn(move || done.send(RunLock::of_root(&root).is_ok()));
        assert!(
            waited
                .recv_timeout(std::time::Duration::from_secs(20))
                .unwrap()
        );
    }
}
