//! `PUT /jobs/:id`: a job's state as its runner says it (sections 2.7 and 4).

use serde::Deserialize;

use super::job::Status;
use super::ledger::{Channel, Kind};
use super::limits::JobRate;
use super::reply::Reply;
use super::state::Gitlab;
use super::token::Secret;

/// GitLab gives up a trace that is not stored after this long.
const GIVE_UP_MS: u64 = 5 * 60_000;
/// A keep-alive moves `updated_at` only when it is older.
pub(super) const TOUCH_MS: u64 = 15 * 60_000;

/// The body of an update; unknown fields are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Update {
    /// The job's token.
    #[serde(default)]
    pub token: Option<Secret>,
    /// `running`, `success` or `failed`.
    #[serde(default)]
    pub state: Option<String>,
    /// Why it failed.
    #[serde(default)]
    pub failure_reason: Option<String>,
    /// What the script returned.
    #[serde(default)]
    pub exit_code: Option<i64>,
    /// Checksum and size of the trace.
    #[serde(default)]
    pub output: Option<Output>,
    /// The old place of the checksum.
    #[serde(default)]
    pub checksum: Option<String>,
}

/// What the runner says of the trace that it sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Output {
    /// `crc32:<8 hex digits>`.
    #[serde(default)]
    pub checksum: Option<String>,
    /// Bytes.
    #[serde(default)]
    pub bytesize: Option<u64>,
}

impl Update {
    /// Whether it ends the job.
    pub fn is_final(&self) -> bool {
        matches!(self.state.as_deref(), Some("success" | "failed"))
    }

    fn checksum(&self) -> Option<&str> {
        let output = self
            .output
            .as_ref()
            .and_then(|output| output.checksum.as_deref());
        output.or(self.checksum.as_deref())
    }
}

impl Gitlab {
    /// Takes an update. `begun` is the call's number; `lost` says that its answer will not arrive.
    pub fn update(&mut self, id: u64, update: &Update, begun: u64, lost: bool, now: u64) -> Reply {
        let Some(token) = update
            .token
            .as_ref()
            .map(Secret::expose)
            .filter(|token| !token.is_empty())
        else {
            return Reply::invalid("token is missing");
        };
        self.note_call(id, Channel::Control, begun, Some(update));
        if let Some(job) = self.jobs.get_mut(&id) {
            job.counts.updates += 1;
        }
        if let Err(reply) = self.throttle_job(id, token, JobRate::Other, 1, now) {
            return reply;
        }
        if let Err(reply) = self.authorize(id, token, true, now) {
            self.note_end(id, Channel::Control, None, lost);
            return reply;
        }
        self.heartbeat(id, now);
        if let Some(reply) = self.acknowledge(id, update, now) {
            return reply;
        }
        if !matches!(
            update.state.as_deref(),
            None | Some("running" | "success" | "failed")
        ) {
            return self.answer_update(id, 400);
        }
        if !update.is_final() {
            return self.answer_update(id, 200);
        }
        if let Some(backoff) = self.wait_for_trace(id, update, now) {
            let wait = backoff.to_string();
            return self
                .answer_update(id, 202)
                .header("X-GitLab-Trace-Update-Interval", wait);
        }
        self.check_output(id, update);
        self.take_final(id, update, now);
        self.note_end(id, Channel::Control, Some(update), lost);
        self.answer_update(id, 200)
    }

    fn answer_update(&self, id: u64, status: u16) -> Reply {
        let word = self.job(id).map_or("", |job| job.status.word());
        Reply::digits(status).header("Job-Status", word)
    }

    /// The 202 ladder of a live trace whose chunks are not stored yet.
    fn wait_for_trace(&mut self, id: u64, update: &Update, now: u64) -> Option<u64> {
        let settings = self.settings.clone();
        let job = self.jobs.get_mut(&id)?;
        if !settings.live_trace || update.checksum().is_none() {
            return None;
        }
        let since = match &job.waiting_final {
            Some((_, since)) => *since,
            None => now,
        };
        job.waiting_final = Some((update.clone(), since));
        let age = now.saturating_sub(since);
        let stored = age >= settings.store_delay_ms && !job.trace_locked;
        (!stored && age < GIVE_UP_MS).then(|| backoff_secs(age / 1_000))
    }

    /// GitLab only counts a mismatch; here it is on the list.
    fn check_output(&mut self, id: u64, update: &Update) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let stored = job.stored.crc32;
        if let Some(text) = update.checksum() {
            let hex = text.strip_prefix("crc32:").unwrap_or(text);
            if u32::from_str_radix(hex, 16) != Ok(stored) {
                let detail = format!("said {text}, stored crc32:{stored:08x}");
                self.ledger.note(Kind::ChecksumMismatch, Some(id), detail);
            }
        }
        let size = job.stored.size;
        let said = update.output.as_ref().and_then(|output| output.bytesize);
        if let Some(said) = said.filter(|said| *said != size) {
            let detail = format!("said {said} bytes, stored {size}");
            self.ledger.note(Kind::SizeMismatch, Some(id), detail);
        }
    }

    fn take_final(&mut self, id: u64, update: &Update, now: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.exit_code = update.exit_code;
        if job.status == Status::Canceling {
            self.check_reaction(id, now);
            self.finish(id, Status::Canceled, None, now);
        } else if update.state.as_deref() == Some("success") {
            self.finish(id, Status::Success, None, now);
        } else {
            let reason = update
                .failure_reason
                .as_deref()
                .unwrap_or("unknown_failure");
            let known = self.failure_reasons().contains(&reason);
            let reason = if known { reason } else { "unknown_failure" };
            self.finish(id, Status::Failed, Some(reason), now);
        }
    }
}

/// Seconds to wait, by the age of the pending state in seconds: 2^slot, at most 64.
fn backoff_secs(age: u64) -> u64 {
    match age {
        0..=3 => 1,
        4..=7 => 2,
        8..=15 => 4,
        16..=31 => 8,
        32..=63 => 16,
        64..=127 => 32,
        _ => 64,
    }
}

#[cfg(test)]
mod tests {
    use super::backoff_secs;

    #[test]
    fn the_ladder_doubles_up_to_64() {
        let rows = [
            (0, 1),
            (3, 1),
            (4, 2),
            (8, 4),
            (16, 8),
            (32, 16),
            (64, 32),
            (128, 64),
            (999, 64),
        ];
        for (age, wait) in rows {
            assert_eq!(backoff_secs(age), wait, "{age} s");
        }
    }
}
