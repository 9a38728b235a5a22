//! Who may call: runner tokens, job tokens, in the order of section 1.

use super::job::{Job, Status};
use super::ledger::{Channel, Kind};
use super::reply::Reply;
use super::runner::{Info, Runner};
use super::settings::CommitMode;
use super::state::Gitlab;
use super::token::Secret;
use super::update::{TOUCH_MS, Update};

impl Gitlab {
    /// The runner of a token, or the refusal.
    pub(super) fn runner_of(&mut self, token: Option<&str>, now: u64) -> Result<u64, Reply> {
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return Err(Reply::invalid("token is missing"));
        };
        let known = self
            .runners
            .iter()
            .find(|runner| runner.token.matches(token));
        match known {
            Some(runner) if runner.token_expires_ms.is_none_or(|at| now < at) => Ok(runner.id),
            _ => Err(Reply::forbidden(None)),
        }
    }

    /// `POST /runners/verify`: 200 with id, token and expiry; a contact.
    pub fn verify(
        &mut self,
        token: Option<&str>,
        system_id: Option<&str>,
        info: Option<&Info>,
        now: u64,
    ) -> Reply {
        let id = match self.runner_of(token, now) {
            Ok(id) => id,
            Err(reply) => return reply,
        };
        let Some(runner) = self.runner_mut(id) else {
            return Reply::forbidden(None);
        };
        runner.contact(system_id.unwrap_or("<legacy>"), info, now);
        runner.credentials(200)
    }

    /// `POST /runners/reset_authentication_token`: the old token stops working at once.
    pub fn reset_runner_token(&mut self, token: Option<&str>, now: u64) -> Reply {
        let id = match self.runner_of(token, now) {
            Ok(id) => id,
            Err(reply) => return reply,
        };
        let Some(runner) = self.runner_mut(id) else {
            return Reply::forbidden(None);
        };
        runner.token = super::token::fresh("glrt-");
        runner.credentials(201)
    }

    /// `DELETE /runners`: the runner is gone, its token unknown.
    pub fn delete_runner(&mut self, token: Option<&str>, now: u64) -> Reply {
        match self.runner_of(token, now) {
            Ok(id) => {
                self.runners.retain(|runner| runner.id != id);
                Reply::empty(204)
            }
            Err(reply) => reply,
        }
    }

    /// `DELETE /runners/managers`: one manager is gone.
    pub fn delete_manager(&mut self, token: Option<&str>, system: Option<&str>, now: u64) -> Reply {
        let id = match self.runner_of(token, now) {
            Ok(id) => id,
            Err(reply) => return reply,
        };
        let Some(system) = system.filter(|system| !system.is_empty()) else {
            return Reply::invalid("system_id is missing");
        };
        let gone = self
            .runner_mut(id)
            .and_then(|runner| runner.managers.remove(system));
        match gone {
            Some(_) => Reply::empty(204),
            None => Reply::message(404, "404 Runner manager Not Found"),
        }
    }

    /// Job authentication. `drops`: an expired token fails the job, as on updates and patches.
    pub(super) fn authorize(
        &mut self,
        id: u64,
        token: &str,
        drops: bool,
        now: u64,
    ) -> Result<(), Reply> {
        let job = self.jobs.get(&id).filter(|job| job.token.matches(token));
        let Some(job) = job else {
            return Err(Reply::forbidden(None));
        };
        let on_runner = job.with_runner(now);
        if on_runner && job.token_expires_ms().is_some_and(|at| now >= at) {
            let before = refuse(job, "Job token has expired");
            if !drops {
                return Err(before);
            }
            self.drop_job(id, "job_token_expired", now);
            let after = self
                .jobs
                .get(&id)
                .map(|job| refuse(job, "Job token has expired"));
            return Err(after.unwrap_or(before));
        }
        if !on_runner {
            return Err(self.not_running(job));
        }
        if job.erased {
            return Err(Reply::forbidden(Some("Job has been erased!")));
        }
        if self.project_of(job).is_none_or(|project| project.deleted) {
            return Err(Reply::forbidden(Some("Project has been deleted!")));
        }
        Ok(())
    }

    /// The running job that a token belongs to: git's and downloads' authentication.
    pub fn running_job_of(&self, token: &str, now: u64) -> Option<&Job> {
        let id = self.tokens.get(&Secret::new(token))?;
        let job = self.jobs.get(id).filter(|job| job.status.on_runner())?;
        let lives = job.token_expires_ms().is_none_or(|at| now < at);
        (lives && job.token.matches(token)).then_some(job)
    }

    /// 403 for a job that no runner holds any more, in the words of the time.
    pub(super) fn not_running(&self, job: &Job) -> Reply {
        refuse(
            job,
            match self.settings.commit_mode {
                CommitMode::Legacy => "Job is not running",
                _ => "Job is not processing on runner",
            },
        )
    }

    /// The runner or the job that a text's tokens belong to, by name. For what leaves the server.
    pub(super) fn owners_of(&self, text: &str) -> Vec<(Option<u64>, &'static str)> {
        let mut found = Vec::new();
        for (token, id) in &self.tokens {
            if text.contains(token.expose()) {
                found.push((Some(*id), "the job token"));
            }
        }
        let mut runners = self.runners.iter();
        if runners.any(|runner| text.contains(runner.token.expose())) {
            found.push((None, "the runner token"));
        }
        found
    }

    /// A contact of a job's runner.
    pub(super) fn heartbeat(&mut self, id: u64, now: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if now.saturating_sub(job.updated_ms) >= TOUCH_MS {
            job.updated_ms = now;
        }
        let (Some(runner), Some(manager)) = (job.runner, job.manager.clone()) else {
            return;
        };
        if let Some(runner) = self.runner_mut(runner) {
            runner.contact(&manager, None, now);
        }
    }

    /// The number of a call that begins now.
    pub fn call_begins(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// Notes that an answer named this status to the job's runner.
    pub fn note_told(&mut self, id: u64, status: &str, now: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.calls.told_ms.entry(status.to_owned()).or_insert(now);
        }
    }

    pub(super) fn note_call(
        &mut self,
        id: u64,
        channel: Channel,
        begun: u64,
        update: Option<&Update>,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if !job.calls.call(channel, begun, update) {
            let what = match (channel, update) {
                (_, Some(_)) => "an update",
                (Channel::Control, None) => "a trace patch",
                (Channel::Transfer, None) => "an artifact call",
            };
            let status = job.status.word();
            let detail = format!("{what} came after the end was answered (job is {status})");
            self.ledger.note(Kind::CallAfterEnd, Some(id), detail);
        }
    }

    pub(super) fn note_end(
        &mut self,
        id: u64,
        channel: Channel,
        accepted: Option<&Update>,
        lost: bool,
    ) {
        let now = self.calls;
        if let Some(job) = self.jobs.get_mut(&id).filter(|_| !lost) {
            job.calls.ended(channel, now, accepted);
        }
    }

    /// Ends a job by the server's own decision.
    pub(super) fn drop_job(&mut self, id: u64, reason: &'static str, now: u64) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.status.is_final()) else {
            return;
        };
        let was_out = job.is_out();
        let status = if job.status == Status::Canceling {
            Status::Canceled
        } else {
            Status::Failed
        };
        job.dropped_by_server = was_out;
        let reason = self.word_of(reason);
        self.finish(id, status, Some(reason), now);
    }
}

/// 403 with the job's status.
fn refuse(job: &Job, reason: &str) -> Reply {
    Reply::forbidden(Some(reason)).header("Job-Status", job.status.word())
}

impl Runner {
    fn credentials(&self, status: u16) -> Reply {
        let expires = self.token_expires_ms.map(super::variables::iso8601);
        let body = serde_json::json!({
            "id": self.id, "token": self.token.expose(), "token_expires_at": expires,
        });
        Reply {
            body: body.to_string(),
            ..Reply::empty(status)
        }
    }
}
