//! `POST /jobs/request`: the queue, its value and the one hand-out (section 2.6).

use serde::Deserialize;

use super::job::{Job, Status};
use super::ledger::Kind;
use super::reply::Reply;
use super::runner::Info;
use super::spec::AllowFailure;
use super::state::Gitlab;
use super::token::{self, Secret};

/// The body of a job request; unknown fields are ignored.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct JobRequest {
    /// The runner's token.
    #[serde(default)]
    pub token: Option<Secret>,
    /// Which manager asks.
    #[serde(default)]
    pub system_id: Option<String>,
    /// The queue value that it saw last.
    #[serde(default)]
    pub last_update: Option<String>,
    /// What it says of itself.
    #[serde(default)]
    pub info: Info,
}

/// What the layer before Rails does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Passes it on.
    Pass,
    /// Holds it until the queue value changes or the time is over, then answers 204 itself.
    Hold,
}

impl Gitlab {
    /// Whether a request would be held: long polls are on and its `last_update` is current.
    pub fn gate(&self, request: &JobRequest) -> Gate {
        let (Some(token), Some(seen)) = (&request.token, &request.last_update) else {
            return Gate::Pass;
        };
        if self.settings.long_poll_ns == 0 || token.expose().is_empty() || seen.is_empty() {
            return Gate::Pass;
        }
        let runner = self
            .runners
            .iter()
            .find(|runner| runner.token.matches(token.expose()));
        match runner {
            Some(runner) if runner.queue_value == *seen => Gate::Hold,
            _ => Gate::Pass,
        }
    }

    /// Rails' part of a request: 201 with a job that is running from here on, or why not.
    pub fn request_job(&mut self, request: &JobRequest, now: u64) -> Reply {
        let id = match self.runner_of(request.token.as_ref().map(Secret::expose), now) {
            Ok(id) => id,
            Err(reply) => return reply,
        };
        let system = request
            .system_id
            .clone()
            .unwrap_or_else(|| "<legacy>".into());
        let Some(runner) = self.runner_mut(id) else {
            return Reply::forbidden(None);
        };
        runner.requests += 1;
        runner.contact(&system, Some(&request.info), now);
        let value = runner.queue_value.clone();
        let seen = request.last_update.as_deref() == Some(value.as_str());
        if runner.paused || seen {
            return self.nothing(id, value);
        }
        while let Some(job) = self.next_for(id) {
            if let Some(reason) = self.unfit(job, &request.info) {
                self.drop_job(job, reason, now);
                continue;
            }
            return self.hand_out(job, id, system, now);
        }
        self.nothing(id, value)
    }

    fn nothing(&mut self, runner: u64, value: String) -> Reply {
        if let Some(runner) = self.runner_mut(runner) {
            runner.empty_answers += 1;
        }
        Reply::empty(204).header("X-GitLab-Last-Update", value)
    }

    /// The oldest pending job that the runner may run.
    fn next_for(&self, runner: u64) -> Option<u64> {
        let runner = self.runners.iter().find(|known| known.id == runner)?;
        let mut pending = self
            .jobs
            .values()
            .filter(|job| job.status == Status::Pending);
        pending
            .find(|job| runner.matches(&job.spec.tags))
            .map(|job| job.id)
    }

    /// Why a job is failed instead of being handed to a runner that says this of itself.
    fn unfit(&self, id: u64, info: &Info) -> Option<&'static str> {
        let job = self.jobs.get(&id)?;
        if self.project_of(job).is_none_or(|project| project.deleted) {
            return Some("project_deleted");
        }
        needed(job)
            .iter()
            .any(|feature| !info.has(feature))
            .then_some("runner_unsupported")
    }

    fn hand_out(&mut self, id: u64, runner: u64, system: String, now: u64) -> Reply {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.status = Status::Running;
            job.started_ms = Some(now);
            job.updated_ms = now;
            job.runner = Some(runner);
            job.manager = Some(system);
        }
        self.count_hand_out(id);
        match self.job_json(id, now) {
            Some(body) => Reply {
                body: body.to_string(),
                ..Reply::empty(201)
            },
            None => {
                self.drop_job(id, "scheduler_failure", now);
                Reply::empty(204)
            }
        }
    }

    /// Counts a hand-out; a second one of the same job is on the list.
    pub(super) fn count_hand_out(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.calls.handed_out += 1;
        if job.calls.handed_out > 1 {
            let detail = format!("handed out {} times", job.calls.handed_out);
            self.ledger.note(Kind::HandedOutTwice, Some(id), detail);
        }
    }

    /// A request whose caller went away before the answer.
    pub fn request_aborted(&mut self, system_id: Option<&str>) {
        let who = system_id.unwrap_or("<legacy>");
        let detail = format!("manager {who:?} closed a job request before its answer");
        self.ledger.note(Kind::AbortedJobRequest, None, detail);
    }

    /// Changes the queue value of every runner that could run a job with these tags.
    pub(super) fn tick(&mut self, tags: &[String]) {
        for runner in &mut self.runners {
            if runner.matches(tags) {
                runner.queue_value = token::random_text();
            }
        }
        self.ticks += 1;
    }

    /// A number that grows with every change of a queue value.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }
}

/// Features without which a job is not handed out.
fn needed(job: &Job) -> Vec<&'static str> {
    let mut features = Vec::new();
    if let Some(artifacts) = &job.spec.artifacts {
        if !artifacts.reports.is_empty() {
            features.push("upload_multiple_artifacts");
        }
        if !artifacts.exclude.is_empty() {
            features.push("artifacts_exclude");
        }
    }
    if matches!(job.spec.allow_failure, AllowFailure::ExitCodes { .. }) {
        features.push("return_exit_code");
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No path hands a job out twice, so the count itself is shown to tell.
    #[test]
    fn a_job_handed_out_twice_is_told() {
        let mut gitlab = Gitlab::new("http://lab", Default::default(), Vec::new());
        gitlab.add_project("acme/web", "/nowhere".into(), "/nowhere".into());
        let spec = serde_json::from_str(r#"{"jobs":[{"name":"a","script":["x"]}]}"#).unwrap();
        let commit = super::super::Commit {
            git_ref: "main".into(),
            tag: false,
            sha: "0".repeat(40),
            format: "sha1".into(),
            ..Default::default()
        };
        let pipeline = gitlab.next_pipeline_id();
        let ids = gitlab.create_pipeline(pipeline, 1, commit, spec, 0);
        gitlab.count_hand_out(ids[0]);
        assert!(gitlab.ledger.seen().is_empty());
        gitlab.count_hand_out(ids[0]);
        assert_eq!(gitlab.ledger.seen()[0].kind, Kind::HandedOutTwice);
    }
}
