//! A job's directory: what lies in it, whose it is, and who lives there.
//!
//! | file | by | what |
//! |---|---|---|
//! | `start.json` | daemon | the start message with its secrets, 0600; gone when the job is over |
//! | `plan.json` | daemon | how the job is to run; no secrets |
//! | `lock` | job process | held exactly as long as it lives |
//! | `job.sock` | job process | where it listens ([`super::wire`]) |
//! | `began` | job process | durable before it does anything: in which start of the host, and what else tells later of what it died |
//! | `output`, `result.json`, `work/` | what runs the job | see [`super::process::Runner`] |
//! | `state.json` | job process | how the job stood at its end; not synced, for display |
//! | `job.log` | job process | its own log |

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use vk_hub_proto::JobId;
use vk_hub_proto::job::JobResult;
use vk_node_core::io::RunPlan;

use super::death::Began;
use super::left;
use super::start_file::{self, Moment, Started};
use super::wire::Progress;
use crate::durable::{
    FileError, private_dir, read_bounded, remove_file, remove_tree, sync_dir, write_private,
};
use crate::state_dir::open_lock;

/// A start message at most: the spec's 512 KiB with room for its frame.
const START_BYTES: u64 = 2 << 20;
/// A result or state at most.
const RESULT_BYTES: u64 = 1 << 20;

/// A job's directory.
#[derive(Clone, Debug)]
pub struct JobDir {
    job: JobId,
    path: PathBuf,
}

/// How a job's process is to run it. Holds no secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The plan's form: 1.
    pub v: u32,
    /// The job.
    pub job: JobId,
    /// Its share of the node.
    pub run: RunPlan,
    /// What the program wants to know of the node, in its own form.
    pub settings: serde_json::Value,
    /// Where past runs are kept; none where an older daemon wrote the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past_runs: Option<PathBuf>,
}

/// Whether a job's process lives.
#[derive(Debug)]
pub enum Tenant {
    /// Somebody holds the lock.
    Lives,
    /// Nobody does; the lock is now the caller's.
    None(JobLock),
}

/// A job's lock, for as long as it is kept.
#[derive(Debug)]
pub struct JobLock(Option<File>);

impl JobLock {
    /// The file, whose lock goes with it to whom it is given.
    #[must_use]
    pub fn into_file(mut self) -> Option<File> {
        self.0.take()
    }
}

impl Drop for JobLock {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            // Closing alone would not do: a child that another thread has forked and that has not
            // come to its exec holds the file too.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// A job's directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JobDirError {
    /// A file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is not there, or does not say what it must.
    #[error("{}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl JobDir {
    /// The directory of `job` at `path`, whether or not it is there.
    #[must_use]
    pub const fn new(job: JobId, path: PathBuf) -> JobDir {
        JobDir { job, path }
    }

    /// Whose it is.
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.job
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The job's output.
    #[must_use]
    pub fn output(&self) -> PathBuf {
        self.file("output")
    }

    /// Makes the directory with the start message in it, both durable but for the directory's own
    /// name, which the caller syncs (CRED-15, DISP-41).
    ///
    /// # Errors
    /// The disk failed.
    pub fn create(&self, start: &[u8]) -> Result<(), FileError> {
        private_dir(&self.path)?;
        write_private(&self.file("start.json"), start)?;
        sync_dir(&self.path)
    }

    /// The job as it was started, with its secrets.
    ///
    /// # Errors
    /// The file is gone or damaged; what it holds is not repeated.
    pub fn start(&self) -> Result<Started, JobDirError> {
        let path = self.file("start.json");
        let damaged = |why: &str| JobDirError::Damaged {
            path: path.clone(),
            why: why.to_owned(),
        };
        let json = read_bounded(&path, START_BYTES)?.ok_or_else(|| damaged("it is missing"))?;
        let read = start_file::read(&json, &Moment::now());
        read.ok_or_else(|| damaged("it holds no start message"))
    }

    /// Removes the start message, and so every secret of the job (CRED-15).
    ///
    /// # Errors
    /// The disk failed.
    pub fn drop_secrets(&self) -> Result<(), FileError> {
        for name in ["start.json", "start.json.new"] {
            remove_file(&self.file(name))?;
        }
        Ok(())
    }

    /// Writes the plan.
    ///
    /// # Errors
    /// The disk failed.
    pub fn write_plan(&self, plan: &Plan) -> Result<(), FileError> {
        let json = serde_json::to_vec(plan).unwrap_or_default();
        write_private(&self.file("plan.json"), &json)
    }

    /// Reads the plan.
    ///
    /// # Errors
    /// It is missing or damaged.
    pub fn plan(&self) -> Result<Plan, JobDirError> {
        let path = self.file("plan.json");
        let damaged = |why: String| JobDirError::Damaged {
            path: path.clone(),
            why,
        };
        let json = read_bounded(&path, RESULT_BYTES)?
            .ok_or_else(|| damaged("it is missing".to_owned()))?;
        let plan: Plan = serde_json::from_slice(&json).map_err(|why| damaged(why.to_string()))?;
        if plan.v != 1 || plan.job != self.job {
            return Err(damaged(
                "it is another job's, or of another version".to_owned(),
            ));
        }
        Ok(plan)
    }

    /// Marks, durably, that the job's process began: from here on the job never runs again.
    ///
    /// # Errors
    /// The disk failed.
    pub fn mark_began(&self) -> Result<(), FileError> {
        let json = serde_json::to_vec(&Began::now()).unwrap_or_default();
        write_private(&self.file("began"), &json)?;
        sync_dir(&self.path)
    }

    /// How its process began, as far as that is known.
    pub(super) fn began_as(&self) -> Began {
        let json = read_bounded(&self.file("began"), RESULT_BYTES);
        let json = json.ok().flatten().unwrap_or_default();
        serde_json::from_slice(&json).unwrap_or_default()
    }

    /// Whether a process of the job ever began.
    #[must_use]
    pub fn began(&self) -> bool {
        self.file("began").exists()
    }

    /// Looks whether the job's process lives, by nothing but its lock.
    ///
    /// # Errors
    /// The lock cannot be asked.
    pub fn tenant(&self) -> Result<Tenant, FileError> {
        let path = self.file("lock");
        let file = open_lock(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Tenant::None(JobLock(Some(file)))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(Tenant::Lives),
            Err(error) => Err(FileError::of("lock", &path)(error.into())),
        }
    }

    /// Bytes in the output; 0 where there is none.
    #[must_use]
    pub fn output_len(&self) -> u64 {
        fs::metadata(self.output()).map_or(0, |of| of.len())
    }

    /// The result, where there is one.
    ///
    /// # Errors
    /// It cannot be read or makes no sense.
    pub fn result(&self) -> Result<Option<JobResult>, JobDirError> {
        let path = self.file("result.json");
        let Some(json) = read_bounded(&path, RESULT_BYTES)? else {
            return Ok(None);
        };
        let result = serde_json::from_slice(&json).map_err(|why| JobDirError::Damaged {
            path,
            why: why.to_string(),
        })?;
        Ok(Some(result))
    }

    /// Writes the result, durably, where what runs the job could not.
    pub(crate) fn write_result(&self, result: &JobResult) -> Result<(), FileError> {
        let json = serde_json::to_vec(result).unwrap_or_default();
        write_private(&self.file("result.json"), &json)?;
        sync_dir(&self.path)
    }

    /// Leaves how the job stood at its end, for display.
    pub(crate) fn leave_state(&self, progress: &Progress) {
        let json = serde_json::to_vec(progress).unwrap_or_default();
        // For display only: without it the job's figures are missing.
        if let Err(error) = fs::write(self.file("state.json"), json) {
            tracing::warn!(job = %self.job, %error, "the job's figures are not kept");
        }
    }

    /// How the job stood at its end, where that is known.
    #[must_use]
    pub fn left_state(&self) -> Option<Progress> {
        let json = read_bounded(&self.file("state.json"), RESULT_BYTES).ok()??;
        serde_json::from_slice(&json).ok()
    }

    /// Ends what a dead job's process left running, and removes what it left behind.
    ///
    /// # Errors
    /// Something does not end, or cannot be removed.
    pub fn clean_up(&self) -> Result<(), FileError> {
        left::end(&self.path).map_err(FileError::of("end the processes of", &self.path))?;
        remove_tree(&self.file("work"))?;
        remove_file(&self.file("job.sock"))
    }

    /// Removes the directory, its secrets first.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn remove(&self) -> Result<(), FileError> {
        self.drop_secrets()?;
        remove_tree(&self.path)?;
        match self.path.parent().filter(|parent| parent.exists()) {
            Some(parent) => sync_dir(parent),
            None => Ok(()),
        }
    }

    /// What the job's files take of the disk, in bytes: at most `entries` of them are looked at.
    #[must_use]
    pub fn disk_use(&self, entries: &mut usize) -> u64 {
        disk_use(&self.path, entries, 16).unwrap_or(0)
    }
}

fn disk_use(path: &Path, entries: &mut usize, depth: u32) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let Some(left) = entries.checked_sub(1) else {
            break;
        };
        *entries = left;
        let entry = entry?;
        let of = entry.metadata()?;
        bytes += of.blocks() * 512;
        if of.is_dir() && depth > 0 {
            bytes += disk_use(&entry.path(), entries, depth - 1).unwrap_or(0);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn job_dir(at: &Path) -> JobDir {
        JobDir::new(JobId::from_bytes([4; 16]), at.join("job"))
    }

    #[test]
    fn a_lock_that_is_dropped_is_free_although_a_fork_still_holds_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let job = job_dir(dir.path());
        job.create(b"{}").unwrap();
        let Tenant::None(held) = job.tenant().unwrap() else {
            panic!("nobody lives there");
        };
        let fork = held.0.as_ref().unwrap().try_clone().unwrap();
        assert!(matches!(job.tenant().unwrap(), Tenant::Lives));
        drop(held);
        assert!(matches!(job.tenant().unwrap(), Tenant::None(_)));
        drop(fork);
    }

    #[test]
    fn a_lock_that_is_handed_on_is_held_by_whom_it_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let job = job_dir(dir.path());
        job.create(b"{}").unwrap();
        let Tenant::None(held) = job.tenant().unwrap() else {
            panic!("nobody lives there");
        };
        let given = held.into_file().unwrap();
        assert!(matches!(job.tenant().unwrap(), Tenant::Lives));
        drop(given);
        assert!(matches!(job.tenant().unwrap(), Tenant::None(_)));
    }

    /// CRED-15
    #[test]
    fn secrets_lie_in_a_private_file_of_a_private_directory_and_go_alone() {
        let dir = tempfile::tempdir().unwrap();
        let job = job_dir(dir.path());
        job.create(b"{\"secret\":1}").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(job.path()), 0o700);
        assert_eq!(mode(&job.file("start.json")), 0o600);
        fs::write(job.output(), "text").unwrap();
        job.drop_secrets().unwrap();
        let left: Vec<_> = fs::read_dir(job.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(job.output_len(), 4);
        job.remove().unwrap();
        assert!(!job.path().exists());
        job.remove().unwrap();
    }

    #[test]
    fn a_job_lives_exactly_while_its_lock_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let job = job_dir(dir.path());
        job.create(b"{}").unwrap();
        let Tenant::None(held) = job.tenant().unwrap() else {
            panic!("nobody holds it yet");
        };
        assert!(matches!(job.tenant().unwrap(), Tenant::Lives));
        drop(held);
        assert!(matches!(job.tenant().unwrap(), Tenant::None(_)));
    }

    #[test]
    fn a_damaged_start_is_not_repeated_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let job = job_dir(dir.path());
        job.create(b"{\"kind\":\"start\",\"token\":\"s3cret\"}")
            .unwrap();
        let error = job.start().unwrap_err().to_string();
        assert!(
            error.contains("start.json") && !error.contains("s3cret"),
            "{error}"
        );
    }
}
