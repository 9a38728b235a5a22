//! A state file that cannot be written (STATE-22).

use std::time::Duration;

use vk_step::Now;

use super::machine::Job;
use super::{Effect, Note, Record, Step, ending};
use crate::Backoff;

/// Whether records are being kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Store {
    /// The job was never kept: it is failed at once, from memory.
    doomed: bool,
    retry_at: Option<Now>,
    backoff: Backoff,
}

impl Default for Store {
    fn default() -> Store {
        Store {
            doomed: false,
            retry_at: None,
            backoff: Backoff::new(Duration::from_secs(5), Duration::from_secs(60)),
        }
    }
}

impl Store {
    /// Whether records are handed out.
    pub(super) const fn keeps(&self) -> bool {
        !self.doomed
    }

    /// Whether everything waits for the next try to write.
    pub(super) const fn is_waiting(&self) -> bool {
        self.retry_at.is_some()
    }

    /// When that is.
    pub(super) const fn deadline(&self) -> Option<Now> {
        self.retry_at
    }
}

impl Job {
    /// Records could not be written, and their step's effects were dropped. A job that was never
    /// kept is failed at once in GitLab: it must not be submitted. One that is kept goes on as after
    /// a restart, once it can be written again.
    pub(super) fn store_failed(&mut self, now: Now, why: String, kept: bool, step: &mut Step) {
        if self.store.doomed {
            return;
        }
        if let Some(mut job) = self.record.clone().filter(|_| !kept) {
            self.store.doomed = true;
            let at = self.wall(now);
            job.ended
                .get_or_insert_with(|| ending::not_kept(&why, &job.taken, at));
            job.refused = true;
            self.resume(now, job, step);
            self.final_phase(now);
        } else {
            self.store.retry_at = Some(now.after(self.store.backoff.fail()));
        }
        step.effect(Effect::Note(Note::StoreFailed { why }));
    }

    /// Whether the machine may go on. After a failed write it first repeats everything it keeps.
    pub(super) fn advance_store(&mut self, now: Now, step: &mut Step) -> bool {
        let Some(at) = self.store.retry_at else {
            return true;
        };
        if now < at {
            return false;
        }
        self.store.retry_at = None;
        if let Some(job) = self.record.clone() {
            step.records.extend(job.records());
            self.resume(now, job, step);
            // A step that was dropped may have been the one that said so.
            self.over_told = false;
        } else if self.is_removed() {
            step.record(Record::Removed);
            step.effect(Effect::Over);
            step.effect(Effect::Removed);
        }
        true
    }
}
