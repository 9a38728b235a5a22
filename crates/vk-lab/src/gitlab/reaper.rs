//! What ends a silent job (section 5), and the list of what a run broke.

use memchr::memmem;

use super::job::{Job, Status};
use super::ledger::{Broken, Kind};
use super::state::Gitlab;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
/// Shorter masked values are found by chance.
const SHORTEST_SECRET: usize = 4;

impl Gitlab {
    /// One sweep: drops every job whose time is over.
    pub fn reap(&mut self, now: u64) {
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
        let canceling = job.status == Status::Canceling;
        match job.status {
            Status::Pending => {
                let waited = now.saturating_sub(job.queued_ms?);
                let mut online = self.runners.iter().filter(|runner| runner.online(now));
                let any = online.any(|runner| runner.matches(&job.spec.tags));
                let limit = if any { 24 * HOUR } else { HOUR };
                let reason = if any {
                    "stuck_pending_with_matching_runners"
                } else {
                    "stuck_pending_no_matching_runners"
                };
                (waited >= limit).then_some(reason)
            }
            Status::Running | Status::Canceling => {
                let deadline = job.started_ms? + job.spec.timeout_secs * 1_000 + 15 * MINUTE;
                if now >= deadline {
                    return Some(pick(
                        canceling,
                        "server_timeout_canceling",
                        "server_timeout_running",
                    ));
                }
                (now.saturating_sub(job.updated_ms) >= HOUR)
                    .then(|| pick(canceling, "no_updates_canceling", "no_updates_running"))
            }
            _ => None,
        }
    }

    /// Everything that was broken: what was seen as it happened, and what stands now.
    pub fn broken(&self) -> Vec<Broken> {
        let mut list = self.ledger.seen().to_vec();
        for job in self.jobs.values() {
            let mut note = |kind, detail| {
                list.push(Broken {
                    kind,
                    job: Some(job.id),
                    detail,
                })
            };
            if let Some((kind, detail)) = unfinished(job) {
                note(kind, detail);
            }
            let judged = job
                .expectation
                .as_ref()
                .and_then(|want| want.judge(&job.trace));
            if let Some((kind, detail)) = judged {
                note(kind, detail);
            }
            for name in self.leaked(job) {
                note(
                    Kind::SecretInTrace,
                    format!("the value of {name} stands in the trace"),
                );
            }
        }
        list
    }

    /// Names of secrets whose value stands in the job's trace.
    fn leaked(&self, job: &Job) -> Vec<String> {
        let runner = self
            .runners
            .iter()
            .find(|runner| Some(runner.id) == job.runner);
        let mut secrets = self.masked_values(job);
        secrets.push(("CI_JOB_TOKEN".into(), job.token.clone()));
        secrets.extend(runner.map(|runner| ("the runner token".into(), runner.token.clone())));
        let long = secrets
            .into_iter()
            .filter(|(_, v)| v.expose().len() >= SHORTEST_SECRET);
        let found = long.filter(|(_, v)| memmem::find(&job.trace, v.expose().as_bytes()).is_some());
        found.map(|(name, _)| name).collect()
    }
}

fn pick(canceling: bool, one: &'static str, other: &'static str) -> &'static str {
    if canceling { one } else { other }
}

fn unfinished(job: &Job) -> Option<(Kind, String)> {
    if job.calls.handed_out == 0 {
        return None;
    }
    let status = job.status.word();
    if job.calls.count == 0 {
        return Some((
            Kind::Orphan,
            format!("handed out, never heard of again ({status})"),
        ));
    }
    let silent = !job.status.is_final() || job.dropped_by_server;
    silent.then(|| {
        let reason = job.failure_reason.as_deref().unwrap_or("no end yet");
        (
            Kind::NeverFinished,
            format!("its runner never ended it ({status}, {reason})"),
        )
    })
}
