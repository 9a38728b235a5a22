//! Where a node keeps what it knows: one daemon at a time.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use vk_hub_client::enrolment::Directory;
use vk_hub_proto::JobId;

use crate::durable::{FileError, private_dir};

/// A state directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// A file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process works here.
    #[error("{} is in use: another vk node runs on it", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
}

/// The node's part of its state directory: `<state_dir>/node`, mode 0700.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
    node: PathBuf,
}

/// The directory's lock, for as long as it is kept.
#[derive(Debug)]
pub struct StateLock {
    file: File,
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // Closing alone would not do: a child that another thread has forked and that has not come to
        // its exec holds the file too.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl StateDir {
    /// Opens it, made where it is missing.
    ///
    /// # Errors
    /// It cannot be made, or is not ours.
    pub fn open(root: &Path) -> Result<StateDir, StateDirError> {
        // Those above it are the administrator's.
        if let Some(parent) = root.parent() {
            fs::create_dir_all(parent).map_err(FileError::of("create the directory", parent))?;
        }
        private_dir(root)?;
        let root = fs::canonicalize(root).map_err(FileError::of("find", root))?;
        let node = root.join("node");
        private_dir(&node)?;
        private_dir(&node.join("jobs"))?;
        Ok(StateDir { root, node })
    }

    /// The one that is there, for whoever only looks: nothing is made, and no mode is changed.
    ///
    /// # Errors
    /// It is not there, or holds something else.
    pub fn look(root: &Path) -> Result<StateDir, StateDirError> {
        let root = fs::canonicalize(root).map_err(FileError::of("find", root))?;
        let node = root.join("node");
        let of = fs::symlink_metadata(&node).map_err(FileError::of("look at", &node))?;
        if !of.is_dir() {
            let error = std::io::Error::from(std::io::ErrorKind::NotADirectory);
            return Err(FileError::of("look into", &node)(error).into());
        }
        Ok(StateDir { root, node })
    }

    /// Takes it for this process alone.
    ///
    /// # Errors
    /// Another process has it.
    pub fn lock(&self) -> Result<StateLock, StateDirError> {
        let path = self.node.join("lock");
        let file = open_lock(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(StateLock { file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateDirError::Locked {
                path: self.root.clone(),
            }),
            Err(error) => Err(FileError::of("lock", &path)(error.into()).into()),
        }
    }

    /// The whole state directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the enrolment is kept.
    #[must_use]
    pub fn enrolment(&self) -> Directory {
        Directory::at(self.node.clone())
    }

    /// The journal of the core's records.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.node.join("journal")
    }

    /// The operator's socket.
    #[must_use]
    pub fn admin_socket(&self) -> PathBuf {
        self.node.join("admin.sock")
    }

    /// What is told of jobs that are gone.
    #[must_use]
    pub fn history(&self) -> PathBuf {
        self.node.join("history.jsonl")
    }

    /// What past runs of jobs used.
    #[must_use]
    pub fn past_runs(&self) -> PathBuf {
        self.root.join("history")
    }

    /// Where the jobs' directories are.
    #[must_use]
    pub fn jobs(&self) -> PathBuf {
        self.node.join("jobs")
    }

    /// A job's directory.
    #[must_use]
    pub fn job(&self, job: JobId) -> PathBuf {
        self.jobs().join(job.to_string())
    }

    /// The jobs that have a directory.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn jobs_on_disk(&self) -> Result<Vec<JobId>, StateDirError> {
        let jobs = self.jobs();
        let failed = |error: io::Error| FileError::of("read the directory", &jobs)(error);
        let mut found = Vec::new();
        for entry in fs::read_dir(&jobs).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            found.extend(name.to_str().and_then(|name| name.parse::<JobId>().ok()));
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// Opens a lock file, made where it is missing.
pub(crate) fn open_lock(path: &Path) -> Result<File, FileError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(FileError::of("open", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn one_process_at_a_time_has_the_directory_and_nobody_else_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("a/vk");
        let state = StateDir::open(&root).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&root), mode(&root.join("node"))), (0o700, 0o700));
        let held = state.lock().unwrap();
        let error = StateDir::open(&root).unwrap().lock().unwrap_err();
        assert!(matches!(error, StateDirError::Locked { .. }), "{error}");
        drop(held);
        state.lock().unwrap();
    }

    #[test]
    fn a_lock_that_is_dropped_is_free_although_a_fork_still_holds_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let held = state.lock().unwrap();
        let _fork = held.file.try_clone().unwrap();
        drop(held);
        state.lock().unwrap();
    }

    #[test]
    fn jobs_are_directories_named_by_their_id() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let job = JobId::from_bytes([7; 16]);
        fs::create_dir(state.job(job)).unwrap();
        fs::create_dir(state.jobs().join("something")).unwrap();
        assert_eq!(state.jobs_on_disk().unwrap(), [job]);
    }
}
