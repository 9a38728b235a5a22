//! The hub's side of a job's end: cancel, settle, drop the record (FLOW-22, STATE-09).

use vk_hub_proto::client::{CancelMode, ErrorCode, JobView};
use vk_step::Now;

use super::hub_calls::HubCall;
use super::machine::Job;
use super::{CallId, Effect, Note, Record, Step};
use crate::HubFailure;

/// The cancel asked of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cancel {
    call: HubCall,
    /// GitLab asked to stop gracefully (GL-36); asked of the hub once (GL-71).
    graceful: bool,
    out: Option<CancelMode>,
    done: Option<CancelMode>,
}

impl Cancel {
    pub(super) fn new(now: Now) -> Cancel {
        Cancel {
            call: HubCall::new(now),
            graceful: false,
            out: None,
            done: None,
        }
    }
}

impl Job {
    /// `Job-Status: canceling`: a graceful cancel, once, unless the job has ended (GL-36, GL-71).
    pub(super) fn canceling(&mut self, step: &mut Step) {
        let ended = self.record.as_ref().is_none_or(|job| job.ended.is_some());
        if !self.cancel.graceful && !ended {
            self.cancel.graceful = true;
            step.effect(Effect::Note(Note::Canceling));
        }
    }

    /// The cancel the hub should be asked for: immediate once nothing more is written to GitLab, or
    /// nobody waits for the job (GL-37, GL-38, STATE-21).
    fn cancel_wanted(&self) -> Option<CancelMode> {
        let job = self.record.as_ref()?;
        if self.view.is_over() || job.hub_job.is_none() {
            return None;
        }
        let wanted = if job.is_over() || job.abandoned {
            CancelMode::Immediate
        } else if self.cancel.graceful && job.ended.is_none() {
            CancelMode::Graceful
        } else {
            return None;
        };
        let in_force = self.cancel.done.max(self.view.cancel);
        (in_force < Some(wanted)).then_some(wanted)
    }

    pub(super) fn advance_cancel(&mut self, now: Now, step: &mut Step) {
        let hub_job = self.record.as_ref().and_then(|job| job.hub_job);
        let (Some(mode), Some(hub_job)) = (self.cancel_wanted(), hub_job) else {
            return;
        };
        if !self.cancel.call.is_due(now) {
            return;
        }
        let call = self.next_call();
        self.cancel.call.goes_out(call, now);
        self.cancel.out = Some(mode);
        step.effect(Effect::Cancel {
            call,
            hub_job,
            mode,
        });
    }

    /// Takes the hub's answer to a cancel.
    pub(super) fn cancel_answered(
        &mut self,
        now: Now,
        call: CallId,
        answer: Result<JobView, HubFailure>,
        step: &mut Step,
    ) {
        if self.cancel.call.answered(call).is_none() {
            return;
        }
        match answer {
            Ok(view) => {
                self.relay.answered();
                self.cancel.done = self.cancel.done.max(self.cancel.out);
                self.cancel.call.succeed(now);
                self.viewed(now, view, step);
            }
            Err(failure) if failure.code == Some(ErrorCode::NotFound) => self.view.forgotten(),
            Err(failure) => {
                let urgency = self.urgency();
                self.cancel
                    .call
                    .fail(now, &failure, urgency, &mut self.spread);
                self.note_hub("cancel", failure, step);
            }
        }
    }

    /// Settles a job that GitLab and the hub are done with, and drops its record then (STATE-09).
    pub(super) fn advance_settle(&mut self, now: Now, step: &mut Step) {
        let Some(job) = self.record.as_ref().filter(|job| job.is_over()) else {
            return;
        };
        // A relay that was removed may be back, where the hub went back to what it was before; not
        // for ever.
        let hopeless = self.relay.lost().is_some() && self.wall(now) >= self.told_until();
        if job.refused || self.view.is_gone() || hopeless {
            self.remove(step);
            return;
        }
        let Some(hub_job) = job.hub_job.filter(|_| self.view.is_over()) else {
            return;
        };
        if !self.settle.is_due(now) {
            return;
        }
        let call = self.next_call();
        self.settle.goes_out(call, now);
        step.effect(Effect::Settle { call, hub_job });
    }

    /// Takes the hub's answer to a settle.
    pub(super) fn settle_answered(
        &mut self,
        now: Now,
        call: CallId,
        answer: Result<(), HubFailure>,
        step: &mut Step,
    ) {
        if self.settle.answered(call).is_none() {
            return;
        }
        match answer {
            Ok(()) => {
                self.relay.answered();
                step.effect(Effect::Note(Note::Settled));
                self.remove(step);
            }
            Err(failure) if failure.code == Some(ErrorCode::NotFound) => self.remove(step),
            Err(failure) => {
                if failure.code == Some(ErrorCode::Conflict) {
                    // Not finished: it is stopped and followed once more (API-63).
                    self.view.forget_result(now);
                }
                let urgency = self.urgency();
                self.settle.fail(now, &failure, urgency, &mut self.spread);
                self.note_hub("settle", failure, step);
            }
        }
    }

    fn remove(&mut self, step: &mut Step) {
        self.keep(Record::Removed, step);
        step.effect(Effect::Removed);
    }

    /// Moments at which a cancel or settle is due.
    pub(super) fn close_deadlines(&self) -> [Option<Now>; 2] {
        [
            self.cancel_wanted().and_then(|_| self.cancel.call.due()),
            self.record
                .as_ref()
                .filter(|job| job.is_over() && self.view.is_over())
                .and_then(|_| self.settle.due()),
        ]
    }
}
