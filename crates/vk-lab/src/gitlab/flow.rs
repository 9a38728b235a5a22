//! The way of a pipeline: which job becomes pending when, retries, and how it ends.

use super::job::{Job, Status};
use super::spec::{AllowFailure, PipelineSpec, When};
use super::state::{Commit, Gitlab, MAX_JOBS, NotFound, Pipeline};
use super::token;

impl Gitlab {
    /// The id that the next pipeline will have: its ref must exist before it does.
    pub fn next_pipeline_id(&mut self) -> u64 {
        let id = self.next_pipeline;
        self.next_pipeline += 1;
        id
    }

    /// Whether so many more jobs fit.
    pub fn has_room(&self, jobs: usize) -> bool {
        self.jobs.len().saturating_add(jobs) <= MAX_JOBS
    }

    /// Makes a checked pipeline under an id of `next_pipeline_id`. Its jobs' ids, in its order.
    pub fn create_pipeline(
        &mut self,
        id: u64,
        project: u64,
        commit: Commit,
        spec: PipelineSpec,
        now: u64,
    ) -> Vec<u64> {
        let mut ids = Vec::with_capacity(spec.jobs.len());
        for job in &spec.jobs {
            ids.push(self.next_job);
            let token = token::padded("glcbt-", self.settings.job_token_bytes);
            self.jobs.insert(
                self.next_job,
                Job::new(self.next_job, id, job.clone(), token, now),
            );
            self.next_job += 1;
        }
        self.pipelines.insert(
            id,
            Pipeline {
                id,
                project,
                commit,
                spec,
                created_ms: now,
                jobs: ids.clone(),
            },
        );
        self.advance(id, now);
        ids
    }

    /// Makes pending (or skips) every job whose predecessors have ended, until nothing changes.
    pub(super) fn advance(&mut self, pipeline: u64, now: u64) {
        loop {
            let ready = self.ready(pipeline);
            if ready.is_empty() {
                return;
            }
            for (id, next) in ready {
                let Some(job) = self.jobs.get_mut(&id) else {
                    continue;
                };
                job.updated_ms = now;
                match next {
                    Next::Pending => self.enqueue(id, now),
                    Next::Skipped => {
                        job.status = Status::Skipped;
                        job.finished_ms = Some(now);
                    }
                    Next::Manual => job.status = Status::Manual,
                }
            }
        }
    }

    fn enqueue(&mut self, id: u64, now: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.status = Status::Pending;
        job.queued_ms = Some(now);
        let tags = job.spec.tags.clone();
        self.pending.insert(id);
        self.tick(&tags);
    }

    /// Starts a job that waits for somebody to do so. Whether it did.
    ///
    /// # Errors
    ///
    /// There is no such job.
    pub fn play(&mut self, id: u64, now: u64) -> Result<bool, NotFound> {
        let job = self.jobs.get_mut(&id).ok_or(NotFound::Job(id))?;
        let waits = job.status == Status::Manual;
        if waits {
            job.updated_ms = now;
            self.enqueue(id, now);
        }
        Ok(waits)
    }

    /// Jobs that wait for nothing any more, and what becomes of them.
    fn ready(&self, pipeline: u64) -> Vec<(u64, Next)> {
        let Some(known) = self.pipelines.get(&pipeline) else {
            return Vec::new();
        };
        let current: Vec<&Job> = self.current_jobs(pipeline).collect();
        if !current.iter().any(|job| job.status == Status::Created) {
            return Vec::new();
        }
        let stages = known.spec.stage_order();
        let waiting = current.iter().filter(|job| job.status == Status::Created);
        let mut ready = Vec::new();
        for job in waiting {
            let names = known.spec.predecessors(&job.spec, &stages);
            let earlier: Vec<&&Job> = current
                .iter()
                .filter(|other| names.contains(&other.spec.name.as_str()))
                .collect();
            let needs = job.spec.needs.is_some();
            if earlier.iter().all(|other| is_over(other, needs)) {
                let failed = earlier.iter().any(|other| blocks(other, needs));
                ready.push((job.id, next(job.spec.when, failed)));
            }
        }
        ready
    }

    /// The jobs of a pipeline that no later attempt replaced.
    pub(super) fn current_jobs(&self, pipeline: u64) -> impl Iterator<Item = &Job> {
        let line = self.pipelines.get(&pipeline).into_iter();
        let ids = line.flat_map(|line| line.jobs.iter());
        ids.filter_map(|id| self.jobs.get(id))
            .filter(|job| !job.superseded)
    }

    /// Ends a job and goes on with its pipeline.
    pub(super) fn finish(&mut self, id: u64, status: Status, reason: Option<&str>, now: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.status = status;
        job.finished_ms = Some(now);
        job.updated_ms = now;
        job.failure_reason = reason.map(str::to_owned);
        job.waiting_final = None;
        job.waiting = None;
        self.pending.remove(&id);
        self.tokens.remove(&job.token);
        job.failure_allowed = status == Status::Failed && may_fail(job);
        let pipeline = job.pipeline;
        let again = status == Status::Failed && wants_retry(job);
        if again && self.has_room(1) {
            self.again(id, true, now);
        }
        if self.settings.sum_ended_traces {
            self.sum_up(id);
        }
        self.advance(pipeline, now);
    }

    /// Runs a job that has ended once more: a new id, a new token. Jobs that were skipped because
    /// of it get another chance.
    ///
    /// # Errors
    ///
    /// There is no such job.
    pub fn retry(&mut self, id: u64, now: u64) -> Result<Option<u64>, NotFound> {
        let job = self.jobs.get(&id).ok_or(NotFound::Job(id))?;
        if !job.status.is_final() || job.superseded || !self.has_room(1) {
            return Ok(None);
        }
        let pipeline = job.pipeline;
        let new = self.again(id, false, now);
        let skipped = self
            .jobs
            .values_mut()
            .filter(|job| job.pipeline == pipeline);
        for job in skipped.filter(|job| job.status == Status::Skipped && !job.superseded) {
            job.status = Status::Created;
            job.finished_ms = None;
        }
        self.advance(pipeline, now);
        Ok(new)
    }

    fn again(&mut self, id: u64, automatic: bool, now: u64) -> Option<u64> {
        let old = self.jobs.get_mut(&id)?;
        old.superseded = true;
        let new = self.next_job;
        self.next_job += 1;
        let mut job = Job::new(
            new,
            old.pipeline,
            old.spec.clone(),
            token::padded("glcbt-", self.settings.job_token_bytes),
            now,
        );
        job.attempt = if automatic { old.attempt + 1 } else { 0 };
        job.status = Status::Pending;
        job.queued_ms = Some(now);
        let tags = job.spec.tags.clone();
        let pipeline = job.pipeline;
        self.jobs.insert(new, job);
        if let Some(line) = self.pipelines.get_mut(&pipeline) {
            line.jobs.push(new);
        }
        self.pending.insert(new);
        self.tick(&tags);
        Some(new)
    }

    /// How a pipeline stands: GitLab's word.
    ///
    /// # Errors
    ///
    /// There is no such pipeline.
    pub fn pipeline_status(&self, id: u64) -> Result<&'static str, NotFound> {
        if !self.pipelines.contains_key(&id) {
            return Err(NotFound::Pipeline(id));
        }
        let all: Vec<&Job> = self.current_jobs(id).collect();
        let any = |status| all.iter().any(|job| job.status == status);
        // Whatever could go on has done so: what is still `created` waits for a manual job.
        let waits = any(Status::Created)
            || all
                .iter()
                .any(|job| job.status == Status::Manual && !may_wait(job));
        Ok(if any(Status::Canceling) {
            "canceling"
        } else if any(Status::Running) {
            "running"
        } else if any(Status::Pending) {
            if all.iter().any(|job| job.status.is_final()) {
                "running"
            } else {
                "pending"
            }
        } else if all
            .iter()
            .any(|job| job.status == Status::Failed && !job.failure_allowed)
        {
            "failed"
        } else if any(Status::Canceled) {
            "canceled"
        } else if waits {
            "manual"
        } else if all
            .iter()
            .all(|job| matches!(job.status, Status::Skipped | Status::Manual))
        {
            "skipped"
        } else {
            "success"
        })
    }
}

/// Retried without being asked to, so often.
const OWN_RETRIES: [&str; 2] = ["scheduler_failure", super::ack::PROVISIONING_TIMEOUT];
const MAX_OWN_RETRIES: u8 = 2;
/// Never retried by themselves, whatever `retry:` says.
const NEVER_RETRIED: [&str; 5] = [
    "ci_quota_exceeded",
    "no_matching_runner",
    "missing_dependency_failure",
    "forward_deployment_failure",
    "environment_creation_failure",
];

/// Old names of `retry:when` that stand for the split ones.
const RETRY_ALIASES: [(&str, &[&str]); 2] = [
    (
        "stuck_or_timeout_failure",
        &[
            "stuck_pending_with_matching_runners",
            "stuck_pending_no_matching_runners",
            "no_updates_running",
            "no_updates_canceling",
        ],
    ),
    (
        "job_execution_timeout",
        &["server_timeout_running", "server_timeout_canceling"],
    ),
];

/// What becomes of a job that waits for no other.
enum Next {
    Pending,
    Skipped,
    Manual,
}

/// Whether later jobs wait for this one no more: it ended, or nobody has to start it. Those that
/// need it by name wait until somebody does.
fn is_over(job: &Job, needs: bool) -> bool {
    job.status.is_final() || (job.status == Status::Manual && may_wait(job) && !needs)
}

/// Whether a manual job holds nothing up.
fn may_wait(job: &Job) -> bool {
    matches!(job.spec.allow_failure, AllowFailure::All(true))
}

/// Whether an ended job counts as a failure for those after it. A job skipped among `needs` does.
fn blocks(job: &Job, needs: bool) -> bool {
    match job.status {
        Status::Failed => !job.failure_allowed,
        Status::Canceled => true,
        Status::Skipped => needs,
        _ => false,
    }
}

fn next(when: When, failed: bool) -> Next {
    match (when, failed) {
        (When::OnSuccess, false) | (When::OnFailure, true) | (When::Always, _) => Next::Pending,
        (When::OnSuccess, true) | (When::OnFailure, false) | (When::Manual, true) => Next::Skipped,
        (When::Manual, false) => Next::Manual,
    }
}

fn may_fail(job: &Job) -> bool {
    match &job.spec.allow_failure {
        AllowFailure::All(allowed) => *allowed,
        AllowFailure::ExitCodes { exit_codes } => {
            job.exit_code.is_some_and(|code| exit_codes.contains(&code))
        }
    }
}

fn wants_retry(job: &Job) -> bool {
    let retry = &job.spec.retry;
    let reason = job.failure_reason.as_deref().unwrap_or("unknown_failure");
    let named = |when: &String| {
        let alias = RETRY_ALIASES.iter().find(|(name, _)| name == when);
        when == "always" || when == reason || alias.is_some_and(|(_, to)| to.contains(&reason))
    };
    let code = |code: &i64| job.exit_code == Some(*code);
    let any = retry.when.is_empty() && retry.exit_codes.is_empty();
    if retry.max == 0 && OWN_RETRIES.contains(&reason) {
        return job.attempt < MAX_OWN_RETRIES;
    }
    job.attempt < retry.max
        && !NEVER_RETRIED.contains(&reason)
        && (any || retry.when.iter().any(named) || retry.exit_codes.iter().any(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(jobs: &str) -> (Gitlab, Vec<u64>) {
        let mut gitlab = Gitlab::new("http://lab", Default::default(), Vec::new());
        gitlab.add_project("acme/web", "/nowhere".into(), "/nowhere".into());
        let text = format!("{{\"jobs\":[{jobs}]}}");
        let spec: PipelineSpec = serde_json::from_str(&text).unwrap();
        spec.check().unwrap();
        let id = gitlab.next_pipeline_id();
        let ids = gitlab.create_pipeline(id, 1, Commit::default(), spec, 0);
        (gitlab, ids)
    }

    fn standing(gitlab: &Gitlab, ids: &[u64]) -> (Vec<Status>, &'static str) {
        let statuses = ids.iter().map(|id| gitlab.job(*id).unwrap().status);
        (statuses.collect(), gitlab.pipeline_status(1).unwrap())
    }

    #[test]
    fn a_manual_job_that_may_fail_holds_up_none_but_those_that_need_it() {
        let (mut gitlab, ids) = pipeline(
            r#"{"name":"m","stage":"a","script":["x"],"when":"manual","allow_failure":true},
               {"name":"next","stage":"b","script":["x"]},
               {"name":"needs","stage":"b","script":["x"],"needs":["m"]}"#,
        );
        let want = vec![Status::Manual, Status::Pending, Status::Created];
        assert_eq!(standing(&gitlab, &ids), (want, "pending"));
        gitlab.finish(ids[1], Status::Success, None, 1);
        assert_eq!(standing(&gitlab, &ids).1, "manual");
        assert!(gitlab.play(ids[0], 2).unwrap());
        gitlab.finish(ids[0], Status::Success, None, 3);
        let want = vec![Status::Success, Status::Success, Status::Pending];
        assert_eq!(standing(&gitlab, &ids), (want, "running"));
    }

    #[test]
    fn a_manual_job_that_may_not_fail_holds_up_the_pipeline_until_it_is_played() {
        let (mut gitlab, ids) = pipeline(
            r#"{"name":"m","stage":"a","script":["x"],"when":"manual"},
               {"name":"next","stage":"b","script":["x"]}"#,
        );
        let want = vec![Status::Manual, Status::Created];
        assert_eq!(standing(&gitlab, &ids), (want, "manual"));
        assert!(
            !gitlab.play(ids[1], 1).unwrap(),
            "only manual jobs are played"
        );
        assert!(gitlab.play(ids[0], 1).unwrap());
        gitlab.finish(ids[0], Status::Failed, Some("script_failure"), 2);
        let want = vec![Status::Failed, Status::Skipped];
        assert_eq!(standing(&gitlab, &ids), (want, "failed"));
    }

    #[test]
    fn a_retry_may_ask_for_exit_codes() {
        let (mut gitlab, ids) =
            pipeline(r#"{"name":"a","script":["x"],"retry":{"max":2,"exit_codes":[7]}}"#);
        let fail = |gitlab: &mut Gitlab, id: u64, code: i64| {
            gitlab.jobs.get_mut(&id).unwrap().exit_code = Some(code);
            gitlab.finish(id, Status::Failed, Some("script_failure"), 1);
        };
        fail(&mut gitlab, ids[0], 7);
        assert_eq!(gitlab.jobs().count(), 2, "one more attempt");
        fail(&mut gitlab, ids[0] + 1, 8);
        assert_eq!(gitlab.jobs().count(), 2);
    }
}
