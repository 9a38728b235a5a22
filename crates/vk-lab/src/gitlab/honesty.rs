//! The list of what a run broke, and how each promise is looked at.

use memchr::memmem;

use super::job::{Job, Status};
use super::ledger::{Broken, Kind};
use super::state::Gitlab;
use super::token::Secret;

/// Shorter masked values are found by chance.
const SHORTEST_SECRET: usize = 4;

impl Gitlab {
    /// Everything that was broken: what was seen as it happened, and what stands now.
    pub fn broken(&self) -> Vec<Broken> {
        let mut list = self.ledger.seen().to_vec();
        for job in self.jobs.values() {
            let unfinished = unfinished(job);
            let all = unfinished.into_iter().chain(self.judge_trace(job));
            list.extend(all.map(|(kind, detail)| Broken {
                kind,
                job: Some(job.id),
                detail,
                injected: kind == Kind::Orphan && job.hand_out_lost,
            }));
        }
        list
    }

    /// Names of secrets whose value stands in `bytes`.
    pub(super) fn leaked(&self, job: &Job, bytes: &[u8]) -> Vec<String> {
        if bytes.is_empty() {
            return Vec::new();
        }
        let secrets = self.secrets(job).into_iter();
        let found = secrets.filter(|(_, v)| memmem::find(bytes, v.expose().as_bytes()).is_some());
        found.map(|(name, _)| name).collect()
    }

    /// What must not leave the server through a job: name and value.
    pub fn secrets_of(&self, id: u64) -> Vec<(String, Secret)> {
        self.jobs
            .get(&id)
            .map_or_else(Vec::new, |job| self.secrets(job))
    }

    fn secrets(&self, job: &Job) -> Vec<(String, Secret)> {
        let mut runners = self.runners.iter();
        let runner = runners.find(|runner| Some(runner.id) == job.runner);
        let mut secrets = self.masked_values(job);
        secrets.push(("CI_JOB_TOKEN".into(), job.token.clone()));
        secrets.extend(runner.map(|runner| ("the runner token".into(), runner.token.clone())));
        secrets.retain(|(_, value)| value.expose().len() >= SHORTEST_SECRET);
        secrets
    }

    /// A secret was found in a file that a job's runner uploaded.
    pub fn found_in_upload(&mut self, id: u64, kind: &str, name: &str) {
        let detail = format!("the value of {name} stands in the {kind}");
        self.ledger.note(Kind::SecretInUpload, Some(id), detail);
    }

    /// Something arrived at another host than the server: no token may be in it.
    pub fn arrived_elsewhere(&mut self, what: &str, text: &str) {
        let mut found: Vec<(Option<u64>, String)> = Vec::new();
        let owners = self.owners_of(text).into_iter();
        found.extend(owners.map(|(job, name)| (job, name.to_owned())));
        let masked = self.variables.iter().filter(|(_, given)| given.masked);
        let masked = masked.filter(|(_, given)| given.value.len() >= SHORTEST_SECRET);
        let seen = masked.filter(|(_, given)| text.contains(&given.value));
        found.extend(seen.map(|(name, _)| (None, name.clone())));
        for (job, name) in found {
            let detail = format!("{name} was sent to another host with {what}");
            self.ledger.note(Kind::SecretToForeignHost, job, detail);
        }
    }

    /// A job that is ended while it is being cancelled: whether that came in time.
    pub(super) fn check_reaction(&mut self, id: u64, now: u64) {
        let most = self.settings.cancel_within_ms;
        let told = self.jobs.get(&id).and_then(Job::told_of_cancel_ms);
        let took = told.map(|at| now.saturating_sub(at));
        if let Some(took) = took.filter(|took| most > 0 && *took > most) {
            let detail = format!("ended {took} ms after its runner was told of the cancel");
            self.ledger.note(Kind::CancelTooSlow, Some(id), detail);
        }
    }
}

impl Job {
    /// When its runner was first told that it is being cancelled.
    pub fn told_of_cancel_ms(&self) -> Option<u64> {
        let told = |status: Status| self.calls.told_ms.get(status.word()).copied();
        let both = [told(Status::Canceling), told(Status::Canceled)].into_iter();
        both.flatten().min()
    }

    /// From the cancel's being told to the last output that the job still brought.
    pub fn output_after_cancel_ms(&self) -> Option<u64> {
        let told = self.told_of_cancel_ms()?;
        self.counts.last_output_ms?.checked_sub(told)
    }
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
