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
            let token = token::fresh("glcbt-");
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
            for (id, runs) in ready {
                let Some(job) = self.jobs.get_mut(&id) else {
                    continue;
                };
                job.updated_ms = now;
                if runs {
                    job.status = Status::Pending;
                    job.queued_ms = Some(now);
                    let tags = job.spec.tags.clone();
                    self.tick(&tags);
                } else {
                    job.status = Status::Skipped;
                    job.finished_ms = Some(now);
                }
            }
        }
    }

    /// Jobs that wait for nothing any more, and whether they run.
    fn ready(&self, pipeline: u64) -> Vec<(u64, bool)> {
        let Some(known) = self.pipelines.get(&pipeline) else {
            return Vec::new();
        };
        let stages = known.spec.stage_order();
        let current: Vec<&Job> = self.current_jobs(pipeline).collect();
        let waiting = current.iter().filter(|job| job.status == Status::Created);
        let mut ready = Vec::new();
        for job in waiting {
            let names = known.spec.predecessors(&job.spec, &stages);
            let earlier: Vec<&&Job> = current
                .iter()
                .filter(|other| names.contains(&other.spec.name.as_str()))
                .collect();
            if earlier.iter().all(|other| other.status.is_final()) {
                let needs = job.spec.needs.is_some();
                let failed = earlier.iter().any(|other| blocks(other, needs));
                ready.push((job.id, runs(job.spec.when, failed)));
            }
        }
        ready
    }

    /// The jobs of a pipeline that no later attempt replaced.
    pub(super) fn current_jobs(&self, pipeline: u64) -> impl Iterator<Item = &Job> {
        self.jobs
            .values()
            .filter(move |job| job.pipeline == pipeline && !job.superseded)
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
        job.failure_allowed = status == Status::Failed && may_fail(job);
        let pipeline = job.pipeline;
        let again = status == Status::Failed && wants_retry(job);
        if again && self.has_room(1) {
            self.again(id, true, now);
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
            token::fresh("glcbt-"),
            now,
        );
        job.attempt = if automatic { old.attempt + 1 } else { 0 };
        job.status = Status::Pending;
        job.queued_ms = Some(now);
        let tags = job.spec.tags.clone();
        self.jobs.insert(new, job);
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
        Ok(if any(Status::Canceling) {
            "canceling"
        } else if any(Status::Running) {
            "running"
        } else if any(Status::Pending) || any(Status::Created) {
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
        } else if all.iter().all(|job| job.status == Status::Skipped) {
            "skipped"
        } else {
            "success"
        })
    }
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

fn runs(when: When, failed: bool) -> bool {
    match when {
        When::OnSuccess => !failed,
        When::OnFailure => failed,
        When::Always => true,
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
    let named = |when: &String| when == "always" || when == reason;
    job.attempt < retry.max && (retry.when.is_empty() || retry.when.iter().any(named))
}
