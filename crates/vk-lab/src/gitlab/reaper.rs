//! What ends a silent job (section 5). The clock is the caller's.

use super::job::{Job, Status};
use super::state::Gitlab;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

impl Gitlab {
    /// One sweep: drops every job whose time is over. With `sweep_every_secs` it looks only when a
    /// multiple of that has passed since it last did; jobs that were never acknowledged are looked
    /// for by a task of their own, at any time.
    pub fn reap(&mut self, now: u64) {
        let waits = self.jobs.values().filter(|job| job.is_given_up(now));
        let given_up: Vec<u64> = waits.map(|job| job.id).collect();
        for id in given_up {
            self.drop_job(id, super::ack::PROVISIONING_TIMEOUT, now);
        }
        let every = self.settings.sweep_every_secs.saturating_mul(1_000);
        let before = std::mem::replace(&mut self.swept_ms, now);
        if every > 0 && now / every == before / every {
            return;
        }
        let overdue: Vec<_> = self
            .jobs
            .values()
            .filter_map(|job| Some((job.id, self.overdue(job, now)?)))
            .collect();
        for (id, reason) in overdue {
            self.drop_job(id, reason, now);
        }
    }

    fn overdue(&self, job: &Job, now: u64) -> Option<&'static str> {
        match job.status {
            Status::Pending if job.waiting.is_none() => self.stuck(job, now),
            Status::Running | Status::Canceling => self.silent(job, now),
            _ => None,
        }
    }

    fn stuck(&self, job: &Job, now: u64) -> Option<&'static str> {
        let waited = now.saturating_sub(job.queued_ms?);
        let mut online = self.runners.iter().filter(|runner| runner.online(now));
        if online.any(|runner| runner.matches(&job.spec.tags)) {
            return (waited >= 24 * HOUR).then_some("stuck_pending_with_matching_runners");
        }
        (waited >= HOUR).then_some("stuck_pending_no_matching_runners")
    }

    fn silent(&self, job: &Job, now: u64) -> Option<&'static str> {
        let pick = |running, canceling| {
            if job.status == Status::Canceling {
                canceling
            } else {
                running
            }
        };
        let timeout = job.timeout_secs.saturating_mul(1_000);
        let deadline = job.started_ms?.saturating_add(timeout) + 15 * MINUTE;
        if now >= deadline {
            return Some(pick("server_timeout_running", "server_timeout_canceling"));
        }
        let most = if self.settings.lower_stuck_timeouts {
            30 * MINUTE
        } else {
            HOUR
        };
        let silent = now.saturating_sub(job.updated_ms) >= most;
        silent.then(|| pick("no_updates_running", "no_updates_canceling"))
    }

    /// The word of the time for a reason of the server's own.
    pub(super) fn word_of(&self, reason: &'static str) -> &'static str {
        if !self.settings.commit_mode.is_old() {
            return reason;
        }
        match reason {
            "stuck_pending_with_matching_runners"
            | "stuck_pending_no_matching_runners"
            | "no_updates_running"
            | "no_updates_canceling" => "stuck_or_timeout_failure",
            "server_timeout_running" | "server_timeout_canceling" => "job_execution_server_timeout",
            "job_token_expired" => "job_execution_timeout",
            other => other,
        }
    }
}
