//! Settled jobs, oldest first (API-71).

use std::collections::{BTreeMap, BTreeSet};

use vk_hub_proto::JobId;

/// The order in which jobs were settled.
#[derive(Debug, Default)]
pub(crate) struct History {
    by_turn: BTreeSet<(u64, JobId)>,
    turns: BTreeMap<JobId, u64>,
    next: u64,
}

impl History {
    /// A job was settled.
    pub(crate) fn push(&mut self, job: JobId) {
        if !self.turns.contains_key(&job) {
            self.next += 1;
            self.turns.insert(job, self.next);
            self.by_turn.insert((self.next, job));
        }
    }

    /// A job is forgotten.
    pub(crate) fn remove(&mut self, job: JobId) {
        if let Some(turn) = self.turns.remove(&job) {
            self.by_turn.remove(&(turn, job));
        }
    }

    /// The job settled longest ago, where there are more than `most`.
    pub(crate) fn beyond(&self, most: usize) -> Option<JobId> {
        if self.turns.len() <= most {
            return None;
        }
        self.by_turn.first().map(|(_, job)| *job)
    }
}
