//! What a node's own files leave behind: directories of jobs that nobody knows any more, and figures
//! of past runs that count for nothing.
//!
//! Safe beside a running node: a directory goes only where the node does not know its job, nobody
//! holds its lock, and it is old.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use vk_hub_proto::JobId;

use crate::admin::{self, CallError};
use crate::daemon::known;
use crate::durable::{FileError, remove_file};
use crate::job::directory::{JobDir, Tenant};
use crate::journal::{Journal, JournalError};
use crate::state_dir::{StateDir, StateDirError};

/// A job's directory younger than this is left, whatever was asked for: a start's files are there
/// before its record.
pub const YOUNGEST: Duration = Duration::from_secs(3600);
/// Figures of runs count for 14 days.
const RUNS_COUNT: Duration = Duration::from_secs(14 * 86_400);
/// Files of one directory that are looked at for its size.
const FILES: usize = 2_000_000;

/// Files that cannot be looked at, or a node that does not tell what it has.
#[derive(Debug, thiserror::Error)]
pub enum GcError {
    /// The node.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Its journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Its directory.
    #[error(transparent)]
    State(#[from] StateDirError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What went, or would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// How many.
    pub count: u64,
    /// What they took of the disk, in bytes.
    pub bytes: u64,
}

impl Removed {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Removes directories of jobs that the node does not know, of which nothing lives, and which are
/// older than `keep`, an hour at least. Without `really`, only counts.
///
/// # Errors
/// See [`GcError`].
pub async fn jobs(state: &StateDir, keep: Duration, really: bool) -> Result<Removed, GcError> {
    let known = present(state).await?;
    let mut removed = Removed::default();
    for job in state.jobs_on_disk()? {
        let dir = JobDir::new(job, state.job(job));
        if known.contains(&job) || age(dir.path()) < keep.max(YOUNGEST) {
            continue;
        }
        // One without a lock never had a process; a lock that is made here would make it young.
        let _lock = match dir
            .file("lock")
            .exists()
            .then(|| dir.tenant())
            .transpose()?
        {
            Some(Tenant::Lives) => continue,
            held => held,
        };
        let bytes = dir.disk_use(&mut FILES.clone());
        if really {
            dir.remove()?;
        }
        removed.add(bytes);
    }
    Ok(removed)
}

/// The jobs that the node has: as it says, or as its journal does where it does not run.
async fn present(state: &StateDir) -> Result<BTreeSet<JobId>, GcError> {
    match admin::jobs(state).await {
        Ok(jobs) => Ok(jobs.into_iter().map(|view| view.job).collect()),
        Err(CallError::NotRunning { .. }) => Ok(known(&Journal::look(&state.journal())?)),
        Err(error) => Err(error.into()),
    }
}

/// Removes figures of jobs that did not run for so long that none counts any more. Without `really`,
/// only counts.
///
/// # Errors
/// A file that cannot be removed.
pub fn past_runs(state: &StateDir, really: bool) -> Result<Removed, GcError> {
    let mut removed = Removed::default();
    for project in entries(&state.past_runs()) {
        for file in entries(&project) {
            if age(&file) <= RUNS_COUNT {
                continue;
            }
            let bytes = fs::metadata(&file).map_or(0, |of| of.len());
            if really {
                remove_file(&file)?;
            }
            removed.add(bytes);
        }
        if really {
            // One that has files still, or again, stays.
            let _ = fs::remove_dir(&project);
        }
    }
    Ok(removed)
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(dir).into_iter().flatten().flatten();
    read.map(|entry| entry.path()).collect()
}

/// Since it was last changed; one of which that is not known is young.
fn age(path: &Path) -> Duration {
    let modified = fs::symlink_metadata(path).and_then(|of| of.modified());
    let now = SystemTime::now();
    modified.map_or(Duration::ZERO, |at| {
        now.duration_since(at).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests;
