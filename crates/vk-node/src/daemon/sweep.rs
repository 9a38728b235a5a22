//! Directories that no record knows: their start was never kept, so nothing of them ever ran.

use std::collections::BTreeSet;

use vk_hub_proto::JobId;
use vk_node_core::Record;

use crate::job::directory::{JobDir, Tenant};
use crate::session::chain;
use crate::state_dir::StateDir;

/// The jobs these records know a directory of.
pub(crate) fn known<'a>(records: impl IntoIterator<Item = &'a Record>) -> BTreeSet<JobId> {
    let mut known = BTreeSet::new();
    for record in records {
        match record {
            Record::Started(started) => {
                known.insert(started.job);
            }
            Record::Recorded { job } => {
                known.insert(*job);
            }
            Record::Dropped { job } => {
                known.remove(job);
            }
            _ => {}
        }
    }
    known
}

/// Removes the directories of jobs that are not known. One with a sign of life in it is left, and
/// said aloud: it would prove that records were lost.
pub(crate) fn sweep(state: &StateDir, known: &BTreeSet<JobId>) {
    let jobs = match state.jobs_on_disk() {
        Ok(jobs) => jobs,
        Err(error) => return tracing::error!(error = chain(&error), "jobs are not swept"),
    };
    for job in jobs.into_iter().filter(|job| !known.contains(job)) {
        let dir = JobDir::new(job, state.job(job));
        let lives = matches!(dir.tenant(), Ok(Tenant::Lives));
        if lives || dir.began() {
            tracing::error!(%job, "the journal knows nothing of a job that ran: its directory is left");
        } else if let Err(error) = dir.remove() {
            tracing::warn!(%job, error = chain(&error), "an unknown job's directory is not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DISP-41
    #[test]
    fn a_start_that_was_never_kept_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let job = |number| {
            let job = JobId::from_bytes([number; 16]);
            let dir = JobDir::new(job, state.job(job));
            dir.create(b"{}").unwrap();
            dir
        };
        let (kept, unknown, ran) = (job(1), job(2), job(3));
        ran.mark_began().unwrap();
        let records = [Record::Recorded { job: kept.job() }];
        sweep(&state, &known(&records));
        assert!(kept.path().exists() && ran.path().exists() && !unknown.path().exists());
    }
}
