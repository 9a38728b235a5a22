//! Which creates were answered, and how (API-46 to API-48, API-58 to API-61, API-73).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use vk_hub_proto::JobId;
use vk_hub_proto::client::ReservationGrant;
use vk_step::Now;

use crate::request::RequestKey;
use crate::{Digest, Refusal};

/// What a submission came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remembered {
    /// This job.
    Job(JobId),
    /// A refusal for good (API-60).
    Refused(Refusal),
    /// A job that has left the history (API-47).
    Forgotten,
}

/// Submissions and what they came to. Kept: each entry goes with a record.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    by_key: BTreeMap<RequestKey, Entry>,
    /// Those without a job, by age; a job's request lasts as long as the job at least.
    by_age: BTreeSet<(u64, RequestKey)>,
}

#[derive(Debug)]
struct Entry {
    digest: Digest,
    at_ms: u64,
    outcome: Remembered,
}

impl Memory {
    pub(crate) fn put(&mut self, key: RequestKey, digest: Digest, outcome: Remembered, at_ms: u64) {
        self.forget(key);
        if !matches!(outcome, Remembered::Job(_)) {
            self.by_age.insert((at_ms, key));
        }
        let entry = Entry {
            digest,
            at_ms,
            outcome,
        };
        self.by_key.insert(key, entry);
    }

    pub(crate) fn forget(&mut self, key: RequestKey) {
        if let Some(entry) = self.by_key.remove(&key) {
            self.by_age.remove(&(entry.at_ms, key));
        }
    }

    /// Digest and outcome of a request.
    pub(crate) fn get(&self, key: RequestKey) -> Option<(Digest, &Remembered)> {
        let entry = self.by_key.get(&key)?;
        Some((entry.digest, &entry.outcome))
    }

    /// Requests without a job.
    pub(crate) fn without_job(&self) -> usize {
        self.by_age.len()
    }

    /// The oldest request without a job, and when it was made, served milliseconds.
    pub(crate) fn oldest(&self) -> Option<(u64, RequestKey)> {
        self.by_age.first().copied()
    }
}

/// Granted reservation requests: in memory only (API-73).
#[derive(Debug, Default)]
pub(crate) struct Grants {
    by_key: BTreeMap<RequestKey, (Digest, ReservationGrant)>,
    by_age: VecDeque<(Now, RequestKey)>,
}

impl Grants {
    /// Remembers a grant, and forgets those older than `life` and the oldest beyond `most`.
    pub(crate) fn put(
        &mut self,
        now: Now,
        key: RequestKey,
        digest: Digest,
        grant: ReservationGrant,
        life: Duration,
        most: usize,
    ) {
        self.by_key.insert(key, (digest, grant));
        self.by_age.push_back((now, key));
        while let Some((at, oldest)) = self.by_age.front().copied()
            && (self.by_age.len() > most || at.after(life) <= now)
        {
            self.by_age.pop_front();
            self.by_key.remove(&oldest);
        }
    }

    /// Digest and grant of a request.
    pub(crate) fn get(&self, key: RequestKey) -> Option<&(Digest, ReservationGrant)> {
        self.by_key.get(&key)
    }
}
