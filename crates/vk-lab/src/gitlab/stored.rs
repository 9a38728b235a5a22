//! What is known of a stored trace whether its bytes are still kept or not.

use aws_lc_rs::digest;

use super::job::Job;
use super::ledger::{Expectation, Kind};
use super::state::{Gitlab, NotFound};

/// Size and sums of a stored trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// Bytes.
    pub size: u64,
    /// CRC-32 (IEEE) of them.
    pub crc32: u32,
    /// SHA-256 as lower-case hex, once the bytes themselves are gone.
    pub sha256: Option<String>,
}

/// SHA-256 as lower-case hex.
fn sha256(bytes: &[u8]) -> String {
    let sum = digest::digest(&digest::SHA256, bytes);
    sum.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

impl Job {
    /// Appends to the trace.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        let mut sum = crc32fast::Hasher::new_with_initial_len(self.stored.crc32, self.stored.size);
        sum.update(bytes);
        self.stored.crc32 = sum.finalize();
        self.stored.size += bytes.len() as u64;
        self.trace.extend_from_slice(bytes);
    }

    /// Keeps the first `keep` bytes of the trace.
    pub(super) fn cut(&mut self, keep: usize) {
        if self.stored.sha256.is_some() {
            return;
        }
        self.trace.truncate(keep);
        self.stored.size = self.trace.len() as u64;
        self.stored.crc32 = crc32fast::hash(&self.trace);
    }

    /// Compares the trace with what it is to be; by its sums where the bytes are gone.
    fn judged(&self, want: &Expectation) -> Option<(Kind, String)> {
        let (Some(sum), Expectation::Exactly(bytes)) = (&self.stored.sha256, want) else {
            return want.judge(&self.trace);
        };
        let (size, wanted) = (self.stored.size, bytes.len() as u64);
        if size < wanted {
            let text = format!("{size} of {wanted} expected bytes were stored");
            return Some((Kind::BytesMissing, text));
        }
        let same = size == wanted && *sum == sha256(bytes);
        let text = format!("the stored trace ({size} bytes, dropped) has another SHA-256");
        (!same).then_some((Kind::BytesChanged, text))
    }
}

impl Gitlab {
    /// Judges the trace of an ended job, keeps its sums and drops its bytes.
    pub(super) fn sum_up(&mut self, id: u64) {
        let found = self.jobs.get(&id).map(|job| self.judge_trace(job));
        let (Some(verdicts), Some(job)) = (found, self.jobs.get_mut(&id)) else {
            return;
        };
        if job.stored.sha256.is_some() {
            return;
        }
        job.stored.sha256 = Some(sha256(&job.trace));
        job.trace = Vec::new();
        job.verdicts = verdicts;
        job.expectation = None;
    }

    /// What is wrong with a job's trace.
    pub(super) fn judge_trace(&self, job: &Job) -> Vec<(Kind, String)> {
        let judged = job.expectation.as_ref().and_then(|want| job.judged(want));
        let mut list: Vec<(Kind, String)> = job.verdicts.clone();
        list.extend(judged);
        if job.stored.sha256.is_none() {
            list.extend(self.leaked(job, &job.trace).into_iter().map(|name| {
                let text = format!("the value of {name} stands in the trace");
                (Kind::SecretInTrace, text)
            }));
        }
        list
    }

    /// What a job's trace is to be in the end. Whether that can be told: the parts of a trace
    /// whose bytes are gone cannot.
    ///
    /// # Errors
    ///
    /// There is no such job.
    pub fn expect(&mut self, id: u64, want: Expectation) -> Result<bool, NotFound> {
        let job = self.jobs.get_mut(&id).ok_or(NotFound::Job(id))?;
        let gone = job.stored.sha256.is_some();
        if gone && matches!(want, Expectation::Contains(_)) {
            return Ok(false);
        }
        job.expectation = Some(want);
        Ok(true)
    }

    /// Someone looks at a job's log: patches are asked for every 3 s for a while.
    ///
    /// # Errors
    ///
    /// There is no such job.
    pub fn watch(&mut self, id: u64, now: u64) -> Result<(), NotFound> {
        let job = self.jobs.get_mut(&id).ok_or(NotFound::Job(id))?;
        job.watched_until_ms = now + super::trace::WATCH_MS;
        Ok(())
    }

    /// Loses stored output from `keep` bytes on, as a server's cache may; what is left.
    ///
    /// # Errors
    ///
    /// There is no such job.
    pub fn forget_trace(&mut self, id: u64, keep: usize) -> Result<u64, NotFound> {
        let job = self.jobs.get_mut(&id).ok_or(NotFound::Job(id))?;
        job.cut(keep);
        Ok(job.stored.size)
    }

    /// Loses the last `bytes` of stored output; what is left.
    ///
    /// # Errors
    ///
    /// There is no such job.
    pub fn forget_tail(&mut self, id: u64, bytes: usize) -> Result<u64, NotFound> {
        let job = self.jobs.get(&id).ok_or(NotFound::Job(id))?;
        let keep = job.trace.len().saturating_sub(bytes);
        self.forget_trace(id, keep)
    }
}
