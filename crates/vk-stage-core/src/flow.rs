//! Which stage follows what.

use vk_hub_proto::job::FailureClass;

use crate::core::{At, Cause, Failure, Out, Running, StageCore};
use crate::io::{Effect, End, JobStatus, Stage, StageEnd};
use crate::line::Line;

/// Between two attempts of preparing, in seconds.
const PREPARE_RETRY_SECS: u64 = 3;

impl StageCore {
    /// A stage ended and the job goes on.
    pub(crate) fn stage_over(
        &mut self,
        running: Running,
        timed_out: bool,
        end: &StageEnd,
        out: &mut Out,
    ) {
        let stage = running.stage;
        let failure = failure_of(stage, end);
        match stage {
            Stage::PrepareExecutor => match failure {
                Some(failure) => self.preparation_failed(running.attempt, failure, end, out),
                None => self.go_on(stage, out),
            },
            Stage::PrepareScript => match failure {
                Some(failure) => self.finish(failure.into(), out),
                None => self.go_on(stage, out),
            },
            Stage::ClearWorktree => match failure {
                Some(failure) => self.attempt_failed(Stage::GetSources, 2, failure, out),
                None => self.run(Stage::GetSources, 2, out),
            },
            Stage::GetSources | Stage::RestoreCache | Stage::DownloadArtifacts => match failure {
                Some(failure) => self.attempt_failed(stage, running.attempt, failure, out),
                None => self.go_on(stage, out),
            },
            Stage::Step(n) => {
                self.step_over(n, failure, out);
                self.go_on(stage, out);
            }
            Stage::AfterScript => {
                self.after_script_over(failure, timed_out, out);
                self.go_on(stage, out);
            }
            Stage::ArchiveCache | Stage::ArchiveCacheOnFailure => {
                self.archive_failure = failure;
                self.go_on(stage, out);
            }
            Stage::UploadArtifactsOnSuccess | Stage::UploadArtifactsOnFailure => {
                self.upload_failure = failure;
                self.go_on(stage, out);
            }
            // What cleaning up says changes nothing.
            Stage::CleanupFileVariables => self.go_on(stage, out),
        }
    }

    fn preparation_failed(
        &mut self,
        attempt: u32,
        failure: Failure,
        end: &StageEnd,
        out: &mut Out,
    ) {
        let stage = Stage::PrepareExecutor;
        let transient = matches!(
            end,
            StageEnd::Failed {
                transient: true,
                ..
            }
        );
        if !transient || attempt >= self.plan.attempts(stage) {
            return self.finish(failure.into(), out);
        }
        let secs = PREPARE_RETRY_SECS;
        out.effect(Effect::Print(Line::PreparationFailed {
            message: failure.message,
        }));
        out.effect(Effect::Print(Line::PreparationRetry { secs }));
        self.at = At::Waiting {
            stage,
            attempt: attempt.saturating_add(1),
            until: self.now.after(std::time::Duration::from_secs(secs)),
        };
    }

    /// An attempt of a stage that may have several failed (STAGE-33).
    fn attempt_failed(&mut self, stage: Stage, attempt: u32, failure: Failure, out: &mut Out) {
        if attempt >= self.plan.attempts(stage) {
            self.failure = Some(failure);
            return self.go_on(stage, out);
        }
        let attempt = attempt.saturating_add(1);
        self.at = At::Waiting {
            stage,
            attempt,
            until: self.now.after(self.plan.backoff(attempt)),
        };
    }

    /// The wait before an attempt is over.
    pub(crate) fn try_again(&mut self, stage: Stage, attempt: u32, out: &mut Out) {
        match stage {
            // Says so itself, before it waits.
            Stage::PrepareExecutor => {}
            _ => out.effect(Effect::Print(Line::Retrying)),
        }
        if (stage, attempt) == (Stage::GetSources, 2) {
            return self.run(Stage::ClearWorktree, 1, out);
        }
        self.run(stage, attempt, out);
    }

    fn step_over(&mut self, n: u32, failure: Option<Failure>, out: &mut Out) {
        let name = || self.plan.name(Stage::Step(n)).to_owned();
        match (self.stopped, failure) {
            (Some(cause), _) => {
                out.effect(Effect::Print(match cause {
                    Cause::Canceled => Line::ScriptCanceled,
                    _ => Line::StageTimeout { stage: name() },
                }));
                self.failure = Some(self.cause_failure(cause));
            }
            (None, Some(failure)) => self.failure = Some(failure),
            (None, None) => {}
        }
    }

    /// `after_script` changes the result only where the job says so, and never a failure
    /// (STAGE-36).
    fn after_script_over(&mut self, failure: Option<Failure>, timed_out: bool, out: &mut Out) {
        let stage = "after_script".to_owned();
        let failure = if timed_out {
            let line = Line::StageTimeout {
                stage: stage.clone(),
            };
            out.effect(Effect::Print(line));
            let message = "context deadline exceeded";
            Some(Failure::new(FailureClass::Timeout, message))
        } else {
            failure
        };
        let Some(failure) = failure else {
            return;
        };
        if self.plan.after_script_ignore_errors {
            out.effect(Effect::Print(Line::FailureIgnored {
                stage,
                message: failure.message,
            }));
        } else {
            self.failure.get_or_insert(failure);
        }
    }

    /// Runs the next stage that is due, or ends the job.
    fn go_on(&mut self, stage: Stage, out: &mut Out) {
        let mut next = self.successor(stage);
        while let Some(stage) = next {
            self.enter(stage, out);
            if self.is_due(stage) {
                return self.run(stage, 1, out);
            }
            next = self.successor(stage);
        }
        let end = self.end();
        self.finish(end, out);
    }

    /// The stage that comes next in the order, due or not.
    fn successor(&self, stage: Stage) -> Option<Stage> {
        let failed = self.failure.is_some();
        let step = |n: u32| match self.plan.step(n) {
            Some(_) => Stage::Step(n),
            None => Stage::AfterScript,
        };
        Some(match stage {
            Stage::PrepareExecutor => Stage::PrepareScript,
            Stage::PrepareScript | Stage::ClearWorktree => Stage::GetSources,
            Stage::GetSources => Stage::RestoreCache,
            Stage::RestoreCache => Stage::DownloadArtifacts,
            Stage::DownloadArtifacts => step(0),
            Stage::Step(n) => step(n.saturating_add(1)),
            Stage::AfterScript if failed => Stage::ArchiveCacheOnFailure,
            Stage::AfterScript => Stage::ArchiveCache,
            Stage::ArchiveCache | Stage::ArchiveCacheOnFailure if failed => {
                Stage::UploadArtifactsOnFailure
            }
            // A cache that failed does not make the artifacts a failed job's.
            Stage::ArchiveCache | Stage::ArchiveCacheOnFailure => Stage::UploadArtifactsOnSuccess,
            Stage::UploadArtifactsOnSuccess | Stage::UploadArtifactsOnFailure => {
                Stage::CleanupFileVariables
            }
            Stage::CleanupFileVariables => return None,
        })
    }

    /// Comes past a stage: the steps' time begins before the first, and scripts learn how the
    /// steps ended before `after_script`.
    fn enter(&mut self, stage: Stage, out: &mut Out) {
        let steps = matches!(stage, Stage::Step(_) | Stage::AfterScript);
        if steps && !self.entered_steps && self.failure.is_none() {
            self.entered_steps = true;
            let timeout = self.plan.script_timeout;
            self.script_deadline = timeout.map(|timeout| self.now.after(timeout));
            for warning in std::mem::take(&mut self.plan.script_warnings) {
                out.effect(Effect::Print(Line::Settings(vec![warning])));
            }
        }
        if stage == Stage::AfterScript && self.entered_steps {
            let status = match (self.stopped, &self.failure) {
                (Some(Cause::Canceled), _) => JobStatus::Canceled,
                (Some(_), _) => JobStatus::TimedOut,
                (None, Some(_)) => JobStatus::Failed,
                (None, None) => JobStatus::Success,
            };
            out.effect(Effect::SetJobStatus(status));
        }
    }

    fn is_due(&self, stage: Stage) -> bool {
        let fine = self.failure.is_none();
        let plan = &self.plan;
        match stage {
            Stage::PrepareExecutor
            | Stage::PrepareScript
            | Stage::GetSources
            | Stage::ClearWorktree
            | Stage::CleanupFileVariables => true,
            Stage::RestoreCache => fine && plan.restores_cache,
            Stage::DownloadArtifacts => fine && plan.downloads_artifacts,
            Stage::Step(_) => self.is_step_due(),
            Stage::AfterScript => self.entered_steps && plan.after_script,
            Stage::ArchiveCache => plan.archives_cache.on_success,
            Stage::ArchiveCacheOnFailure => plan.archives_cache.on_failure,
            Stage::UploadArtifactsOnSuccess => plan.uploads_artifacts.on_success,
            Stage::UploadArtifactsOnFailure => plan.uploads_artifacts.on_failure,
        }
    }

    /// Steps run while nothing has failed; never once they were stopped, nor where they were not
    /// reached.
    fn is_step_due(&self) -> bool {
        self.entered_steps && self.stopped.is_none() && self.failure.is_none()
    }

    /// How the job ends as things stand: the script's failure, else the caches', else the
    /// artifacts'.
    pub(crate) fn end(&self) -> End {
        let failures = [&self.failure, &self.archive_failure, &self.upload_failure];
        let first = failures.into_iter().flatten().next();
        first.cloned().map(End::from).unwrap_or_default()
    }
}

/// What an end means in its stage, if it is a failure.
fn failure_of(stage: Stage, end: &StageEnd) -> Option<Failure> {
    let failure = match end {
        StageEnd::Done | StageEnd::Exit(0) => return None,
        StageEnd::Exit(code) => {
            let script = matches!(stage, Stage::Step(_) | Stage::AfterScript);
            let class = match stage {
                _ if script => FailureClass::Script,
                Stage::PrepareExecutor | Stage::PrepareScript => FailureClass::System,
                _ => FailureClass::ExternalDependency,
            };
            Failure {
                class,
                // The real one, for `allow_failure: exit_codes` (STAGE-37, FAIL-28).
                exit_code: script.then_some(*code),
                message: format!("exit code {code}"),
            }
        }
        StageEnd::Failed { class, message, .. } => Failure::new(*class, message.clone()),
    };
    if stage != Stage::PrepareScript {
        return Some(failure);
    }
    let message = format!(
        "prepare environment: {}. Check \
         https://docs.gitlab.com/runner/shells/#shell-profile-loading for more information",
        failure.message
    );
    Some(Failure { message, ..failure })
}
