//! The window of 18.5 in which a job waits to be acknowledged (section 7). It is gone from 19.x.

use super::job::{Job, Status};
use super::reply::Reply;
use super::settings::CommitMode;
use super::state::Gitlab;
use super::update::Update;

/// How long a job waits after the last sign of life.
const TTL_MS: u64 = 120_000;
/// The task that looks whether it still waits: first after the time to live, then this often.
const LOOK_MS: u64 = 30_000;
/// Why a job that was never acknowledged fails; known to that GitLab only.
pub(super) const PROVISIONING_TIMEOUT: &str = "runner_provisioning_timeout";

/// A job that was handed out and is not committed.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    handed_ms: u64,
    until_ms: u64,
    manager: String,
}

impl Waiting {
    fn lives(&self, now: u64) -> bool {
        now < self.until_ms
    }

    /// When the task that looks finds the job given up.
    fn found_ms(&self) -> u64 {
        let first = self.handed_ms + TTL_MS;
        let late = self.until_ms.saturating_sub(first).div_ceil(LOOK_MS);
        first + late * LOOK_MS
    }
}

impl Job {
    /// Whether its runner may speak for it: it runs, or waits to be acknowledged.
    pub(super) fn with_runner(&self, now: u64) -> bool {
        let waits = self.waiting.as_ref();
        self.status.on_runner() || waits.is_some_and(|waiting| waiting.lives(now))
    }

    /// Whether it was handed out and has not ended.
    pub(super) fn is_out(&self) -> bool {
        self.status.on_runner() || self.waiting.is_some()
    }

    /// Whether the time to acknowledge it is over, and that was seen.
    pub(super) fn is_given_up(&self, now: u64) -> bool {
        let waits = self.waiting.as_ref();
        waits.is_some_and(|waiting| now >= waiting.found_ms())
    }
}

impl Gitlab {
    /// Whether a runner with these words gets its jobs uncommitted.
    pub(super) fn commits_later(&self, info: &super::Info) -> bool {
        self.settings.commit_mode == CommitMode::Acknowledged && info.has("two_phase_job_commit")
    }

    /// Hands a job out uncommitted: out of the queue, still pending, known to no manager.
    pub(super) fn hand_out_waiting(&mut self, id: u64, runner: u64, manager: String, now: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.runner = Some(runner);
            job.waiting = Some(Waiting {
                handed_ms: now,
                until_ms: now + TTL_MS,
                manager,
            });
        }
        self.pending.remove(&id);
    }

    /// An update of a job that waits: `pending` keeps it, `running` commits it, anything else is
    /// refused. Nothing where it does not wait.
    pub(super) fn acknowledge(&mut self, id: u64, update: &Update, now: u64) -> Option<Reply> {
        let job = self.jobs.get_mut(&id)?;
        let waiting = job.waiting.as_mut()?;
        match update.state.as_deref() {
            Some("pending") => {
                waiting.until_ms = now + TTL_MS;
                Some(Reply::digits(200).header("Job-Status", "pending"))
            }
            Some("running") => {
                let manager = waiting.manager.clone();
                job.waiting = None;
                let runner = job.runner?;
                self.start(id, runner, manager.clone(), now);
                if let Some(runner) = self.runner_mut(runner) {
                    runner.contact(&manager, None, now);
                }
                Some(Reply::digits(200).header("Job-Status", Status::Running.word()))
            }
            _ => Some(Reply::digits(400).header("Job-Status", "pending")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_found_given_up_two_to_two_and_a_half_minutes_after_the_last_sign() {
        let rows = [
            (120_000, 120_000),
            (120_001, 150_000),
            (130_000, 150_000),
            (150_000, 150_000),
            (240_000, 240_000),
            (241_000, 270_000),
        ];
        for (until_ms, found) in rows {
            let waiting = Waiting {
                handed_ms: 0,
                until_ms,
                manager: String::new(),
            };
            assert_eq!(waiting.found_ms(), found, "{until_ms}");
        }
    }
}
