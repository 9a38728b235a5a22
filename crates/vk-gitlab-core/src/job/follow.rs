//! The hub's view of the job: followed until it is finished (FLOW-17, GL-30).

use std::time::Duration;

use vk_hub_proto::client::{CancelMode, ErrorCode, JobState, JobView};
use vk_hub_proto::job::{FailureClass, JobResult};
use vk_hub_proto::limit::WAIT_SECS;
use vk_step::Now;

use super::hub_calls::HubCall;
use super::machine::Job;
use super::{CallId, Effect, Ended, Note, Record, Step, ending};
use crate::HubFailure;

/// Views that bring nothing new are not asked for closer together than this.
const APART: Duration = Duration::from_secs(1);

/// What the hub said of the job in this life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    call: HubCall,
    revision: Option<u64>,
    /// Whether a node accepted the job.
    accepted: bool,
    /// The cancel in force at the hub.
    pub(super) cancel: Option<CancelMode>,
    /// How it ended, once it is finished.
    result: Option<JobResult>,
    /// The hub has no such job any more.
    gone: bool,
}

impl View {
    pub(super) fn new(now: Now) -> View {
        View {
            call: HubCall::new(now),
            revision: None,
            accepted: false,
            cancel: None,
            result: None,
            gone: false,
        }
    }

    /// Whether a node accepted the job (GL-14).
    pub(super) const fn accepted(&self) -> bool {
        self.accepted
    }

    /// Whether the hub is done with it.
    pub(super) const fn is_over(&self) -> bool {
        self.result.is_some() || self.gone
    }

    /// Whether the hub has forgotten it.
    pub(super) const fn is_gone(&self) -> bool {
        self.gone
    }

    /// The hub says that it is not finished after all.
    pub(super) fn forget_result(&mut self, now: Now) {
        self.result = None;
        self.revision = None;
        self.call.succeed(now.after(APART));
    }

    /// The hub has no such job.
    pub(super) fn forgotten(&mut self) {
        self.gone = true;
    }
}

impl Job {
    pub(super) fn advance_view(&mut self, now: Now, step: &mut Step) {
        let Some(hub_job) = self.record.as_ref().and_then(|job| job.hub_job) else {
            return;
        };
        if self.view.is_over() || !self.view.call.is_due(now) {
            return;
        }
        let call = self.next_call();
        self.view.call.goes_out(call, now);
        step.effect(Effect::View {
            call,
            hub_job,
            after: self.view.revision,
            wait_secs: WAIT_SECS,
        });
    }

    /// Takes the hub's answer to a view.
    pub(super) fn view_answered(
        &mut self,
        now: Now,
        call: CallId,
        answer: Result<JobView, HubFailure>,
        step: &mut Step,
    ) {
        let Some(sent) = self.view.call.answered(call) else {
            return;
        };
        match answer {
            Ok(view) => {
                let news = self.view.revision != Some(view.revision);
                let next = if news { now } else { sent.after(APART) };
                self.view.call.succeed(next);
                self.relay.answered();
                self.viewed(now, view, step);
            }
            Err(failure) if failure.code == Some(ErrorCode::NotFound) => {
                self.view.forgotten();
                step.effect(Effect::Note(Note::LostByHub));
            }
            Err(failure) => {
                let urgency = self.urgency();
                self.view
                    .call
                    .fail(now, &failure, urgency, &mut self.spread);
                self.note_hub("view", failure, step);
            }
        }
    }

    /// Takes a view, however it came. An older one than is known changes nothing.
    pub(super) fn viewed(&mut self, now: Now, view: JobView, step: &mut Step) {
        let known = self.view.revision;
        if known.is_some_and(|known| view.revision < known) || self.view.is_over() {
            return;
        }
        self.view.revision = Some(view.revision);
        self.view.cancel = view.cancel;
        let accepted = was_accepted(&view);
        if accepted && !self.view.accepted {
            self.view.accepted = true;
            step.effect(Effect::Note(Note::Accepted));
        }
        if view.state == JobState::Finished {
            self.view.result = Some(view.result.unwrap_or_else(unexplained));
            self.trace.finished(now);
        }
    }

    /// Decides how the job ended, once that is known. A job that a node took is committed first, so
    /// that GitLab sees it run (GL-46); one that no node took never is (GL-15).
    pub(super) fn advance_end(&mut self, now: Now, step: &mut Step) {
        let Some(job) = self.record.as_ref() else {
            return;
        };
        // A refused or abandoned job ends in the step that says so; should the end be missing all
        // the same, the job is not left without one.
        let stopped = job.refused || job.abandoned;
        let lost = self.relay.lost().filter(|_| job.hub_job.is_some());
        let known = stopped || self.view.is_over() || lost.is_some();
        if job.ended.is_some() || job.is_over() || !known {
            return;
        }
        let at = self.wall(now);
        let ended = match (&self.view.result, lost) {
            _ if stopped => ending::stopped(&job.taken, at),
            (Some(_), _) if self.view.accepted && !job.committed => return,
            (Some(result), _) => ending::by_result(result, &job.taken, at),
            (None, Some(why)) => ending::relay_removed(&self.config.hub_url, why, &job.taken, at),
            (None, None) => ending::lost_by_hub(&job.taken, at),
        };
        self.end(now, ended, step);
    }

    /// The job's end is known: from here on it is only told.
    pub(super) fn end(&mut self, now: Now, ended: Ended, step: &mut Step) {
        let told = |job: &super::JobRecord| job.ended.is_some() || job.is_over();
        if self.record.as_ref().is_none_or(told) {
            return;
        }
        self.keep(Record::Ended(ended), step);
        step.effect(Effect::Note(Note::Ended));
        self.final_phase(now);
    }

    /// When the next view is due.
    pub(super) fn view_deadline(&self) -> Option<Now> {
        let hub_job = self.record.as_ref().and_then(|job| job.hub_job);
        hub_job.filter(|_| !self.view.is_over())?;
        self.view.call.due()
    }
}

/// Whether a view shows that a node accepted the job. One that ended for want of a node, was lost or
/// cancelled may never have had one: then it has neither a stage nor output.
fn was_accepted(view: &JobView) -> bool {
    match view.state {
        JobState::Running => true,
        JobState::Finished => {
            let failure = view.result.as_ref().and_then(|result| result.failure);
            let may_never_have_run = matches!(
                failure,
                Some(FailureClass::NoCapacity | FailureClass::Lost | FailureClass::Canceled)
            );
            !may_never_have_run || view.stage.is_some() || view.output_len > 0
        }
        JobState::Queued | JobState::Starting | JobState::Other => false,
    }
}

/// A finished job whose view does not say how.
fn unexplained() -> JobResult {
    JobResult {
        failure: Some(FailureClass::System),
        exit_code: None,
        message: None,
        output_len: 0,
        artifacts: Vec::new(),
        usage: None,
    }
}
