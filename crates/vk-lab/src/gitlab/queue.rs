//! `POST /jobs/request`: the queue, its value and the one hand-out (section 2.6).

use serde::Deserialize;
use serde_json::Value;

use super::job::{Job, Status};
use super::ledger::Kind;
use super::reply::Reply;
use super::runner::Info;
use super::spec::AllowFailure;
use super::state::Gitlab;
use super::token::Secret;

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
    pub fn gate(&self, request: &JobRequest, now: u64) -> Gate {
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
            Some(runner) if runner.queue_value == *seen && !runner.is_stale(now) => Gate::Hold,
            _ => Gate::Pass,
        }
    }

    /// Rails' part of a request: 201 with a job that is running from here on, or why not.
    pub fn request_job(&mut self, request: &JobRequest, now: u64) -> Reply {
        let id = match self.runner_of(request.token.as_ref().map(Secret::expose), now) {
            Ok(id) => id,
            Err(reply) => return reply,
        };
        if let Err(reply) = self.throttle_runner(id, now) {
            return reply;
        }
        let system = request
            .system_id
            .clone()
            .unwrap_or_else(|| "<legacy>".into());
        let Some(runner) = self.runner_mut(id) else {
            return Reply::forbidden(None);
        };
        runner.requests += 1;
        runner.contact(&system, Some(&request.info), now);
        let value = runner.value(now);
        let seen = request.last_update.as_deref() == Some(value.as_str());
        if runner.paused || seen {
            return self.nothing(id, value, now);
        }
        while let Some(job) = self.next_for(id) {
            if let Some(reason) = self.unfit(job, &request.info) {
                self.drop_job(job, reason, now);
                continue;
            }
            if self.commits_later(&request.info) {
                self.hand_out_waiting(job, id, system, now);
            } else {
                self.start(job, id, system, now);
            }
            return self.hand_out(job, id, now);
        }
        self.nothing(id, value, now)
    }

    fn nothing(&mut self, runner: u64, value: String, now: u64) -> Reply {
        if let Some(runner) = self.runner_mut(runner) {
            runner.answered_empty(now);
        }
        Reply::empty(204).header("X-GitLab-Last-Update", value)
    }

    /// The oldest pending job that the runner may run.
    fn next_for(&self, runner: u64) -> Option<u64> {
        let runner = self.runners.iter().find(|known| known.id == runner)?;
        let mut pending = self.pending.iter().filter_map(|id| self.jobs.get(id));
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
        if self.lacks_dependency(job) {
            return Some("missing_dependency_failure");
        }
        self.needed(job)
            .iter()
            .any(|feature| !info.has(feature))
            .then_some("runner_unsupported")
    }

    /// Commits a job to a runner: from here on it runs.
    pub(super) fn start(&mut self, id: u64, runner: u64, manager: String, now: u64) {
        self.pending.remove(&id);
        let longest = self.runner_mut(runner).and_then(|r| r.maximum_timeout_secs);
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.timeout_secs = longest.map_or(job.spec.timeout_secs, |most| {
            job.spec.timeout_secs.min(most)
        });
        job.status = Status::Running;
        job.started_ms = Some(now);
        job.updated_ms = now;
        job.runner = Some(runner);
        job.manager = Some(manager);
        self.tokens.insert(job.token.clone(), id);
    }

    fn hand_out(&mut self, id: u64, runner: u64, now: u64) -> Reply {
        self.count_hand_out(id);
        self.count_wait(id, runner, now);
        match self.job_json(id, now) {
            Some(body) => Reply {
                body: body.to_string(),
                job: Some(id),
                ..Reply::empty(201)
            },
            None => {
                self.drop_job(id, "scheduler_failure", now);
                Reply::empty(204)
            }
        }
    }

    fn count_wait(&mut self, id: u64, runner: u64, now: u64) {
        let runner = self.runners.iter().find(|known| known.id == runner);
        let Some((job, runner)) = self.jobs.get_mut(&id).zip(runner) else {
            return;
        };
        let since = job.queued_ms.unwrap_or(now);
        let waited = runner.recent_empty.iter().filter(|at| **at >= since);
        job.counts.empty_before = waited.count() as u64;
        job.counts.pick_up_ms = Some(now.saturating_sub(since));
    }

    /// A held request that was answered 204 by the layer before Rails.
    pub fn held_in_vain(&mut self, request: &JobRequest, now: u64) {
        let token = request.token.as_ref().map_or("", Secret::expose);
        let mut runners = self.runners.iter_mut();
        if let Some(runner) = runners.find(|runner| runner.token.matches(token)) {
            runner.answered_empty(now);
        }
    }

    /// The answer that handed a job out is lost on purpose.
    pub fn hand_out_lost(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.hand_out_lost = true;
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
                runner.renew_value(0);
            }
        }
        self.ticks += 1;
    }

    /// A number that grows with every change of a queue value.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }
}

impl Gitlab {
    /// Whether an archive that a job depends on is gone.
    fn lacks_dependency(&self, job: &Job) -> bool {
        self.dependencies_of(job)
            .iter()
            .any(|other| other.erased && !other.artifacts.is_empty())
    }

    /// Features without which a job is not handed out: by what its response has.
    fn needed(&self, job: &Job) -> Vec<&'static str> {
        let mut features = needed(job);
        let overlay = job.spec.response.as_ref();
        let field = |name: &str| overlay.and_then(|response| response.get(name));
        let listed = |name: &str| field(name).and_then(Value::as_array).into_iter().flatten();
        let is_full = |value: Option<&Value>| match value {
            Some(Value::Array(list)) => !list.is_empty(),
            Some(Value::Object(fields)) => !fields.is_empty(),
            _ => false,
        };
        if listed("cache").any(|cache| is_full(cache.get("fallback_keys"))) {
            features.push("fallback_cache_keys");
        }
        if is_full(field("secrets")) {
            features.push("vault_secrets");
        }
        if listed("steps").any(|step| step.get("name").is_some_and(|name| name == "release")) {
            features.push("multi_build_steps");
        }
        let refspecs = field("git_info").and_then(|info| info.get("refspecs"));
        let refspecs = refspecs.and_then(Value::as_array).into_iter().flatten();
        let special =
            |spec: &&str| spec.contains("refs/merge-requests/") || spec.contains("refs/workloads/");
        if refspecs
            .filter_map(Value::as_str)
            .any(|spec| special(&spec))
        {
            features.push("refspecs");
        }
        features
    }
}

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
    let by_code = matches!(job.spec.allow_failure, AllowFailure::ExitCodes { .. });
    if by_code || !job.spec.retry.exit_codes.is_empty() {
        features.push("return_exit_code");
    }
    let fallbacks = |cache: &super::spec::CacheSpec| !cache.fallback_keys.is_empty();
    if job.spec.cache.iter().any(fallbacks) {
        features.push("fallback_cache_keys");
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
