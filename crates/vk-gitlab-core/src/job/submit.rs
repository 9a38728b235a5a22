//! From GitLab's 201 to the hub's job (ADM-14, ERR-29, ERR-30, STATE-20, STATE-21).

use std::time::Duration;

use vk_hub_proto::ReservationId;
use vk_hub_proto::client::{ErrorCode, JobView, Placement};
use vk_hub_proto::limit::SPEC_BYTES;
use vk_step::Now;

use super::hub_calls::HubCall;
use super::machine::Job;
use super::{CallId, Effect, Ended, Note, Record, Step, Taken, ending};
use crate::{HubFailure, NewJob, WithoutReservation, Work};

/// How long after it was taken a job may be submitted: an older request ID may be forgotten by the
/// hub, and would make a second job (API-46: a day).
const SUBMITTABLE_SECS: u64 = 23 * 3600;

/// The submission being made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Submission {
    call: HubCall,
    /// When the job is given up, unless the hub has answered (ERR-29).
    until: Now,
    last_failure: String,
    /// The hub may hold the job already: a try of this life or of one before it has an unknown fate.
    unsure: bool,
}

impl Submission {
    pub(super) fn new(now: Now, place_within_secs: u32, unsure: bool) -> Submission {
        Submission {
            call: HubCall::new(now),
            unsure,
            until: now.after(Duration::from_secs(place_within_secs.into())),
            last_failure: "no answer".to_owned(),
        }
    }
}

impl Job {
    /// GitLab handed the job over: it is kept before anything else happens with it (FLOW-13).
    pub(super) fn take_job(
        &mut self,
        now: Now,
        job: NewJob,
        placement: Placement,
        reservation: Result<ReservationId, WithoutReservation>,
        step: &mut Step,
    ) {
        if self.record.is_some() || self.is_removed() {
            return;
        }
        let (spec, refusal) = match job.work {
            Work::Run(spec) => (Some(spec), None),
            Work::Refuse { class, lines } => (None, Some((class, lines))),
        };
        let taken = Taken {
            gitlab_job: job.gitlab_job,
            job_token: job.token,
            request_id: job.request_id,
            reservation: reservation.ok(),
            without_reservation: reservation.err(),
            place_within_secs: self.config.place_within_secs,
            placement,
            spec,
            preamble: job.preamble,
            failure_reasons: job.failure_reasons,
            debug_trace: job.debug_trace,
            timestamps: job.timestamps,
            taken_at: job.taken_at,
            token_ends: job.token_ends,
            unknown: std::collections::BTreeMap::new(),
        };
        let at = self.wall(now);
        let ended = match refusal {
            Some((class, lines)) => Some(ending::failed(class, &taken, lines, at)),
            None if job.spec_bytes > SPEC_BYTES => {
                Some(ending::too_large(job.spec_bytes, &taken, at))
            }
            None => None,
        };
        self.submission = Submission::new(now, taken.place_within_secs, false);
        self.keep(Record::Taken(Box::new(taken)), step);
        step.effect(Effect::Note(Note::Received));
        if let Some(ended) = ended {
            self.refuse(now, ended, step);
        }
    }

    /// Fails a job of which the hub holds nothing: its reservation goes back (ERR-21), and GitLab is
    /// told without a commit (ERR-22).
    pub(super) fn refuse(&mut self, now: Now, ended: Ended, step: &mut Step) {
        self.keep(Record::Refused, step);
        self.release_reservation(step);
        self.end(now, ended, step);
    }

    /// Gives the reservation back that the job was to start on.
    pub(super) fn release_reservation(&self, step: &mut Step) {
        let reservation = self.record.as_ref().and_then(|job| job.taken.reservation);
        if let Some(reservation) = reservation {
            step.effect(Effect::Release { reservation });
        }
    }

    pub(super) fn advance_submission(&mut self, now: Now, step: &mut Step) {
        let Some(job) = self.record.as_ref().filter(|job| needs_submission(job)) else {
            return;
        };
        let age = self.wall(now).saturating_sub(job.taken.taken_at);
        let too_old = job.taken.taken_at != 0 && age > SUBMITTABLE_SECS;
        let failure = if job.taken.spec.is_none() {
            Some("its specification was not kept")
        } else {
            too_old.then_some("it was taken too long ago to be submitted")
        };
        let too_late = !job.abandoned && now >= self.submission.until;
        if let Some(why) = failure {
            let ended = self.not_submitted(now, job, why);
            self.refuse(now, ended, step);
            return;
        }
        if too_late {
            let ended = self.not_submitted(now, job, &self.submission.last_failure);
            step.effect(Effect::Note(Note::Abandoned));
            self.keep(Record::Abandoned, step);
            self.end(now, ended, step);
        }
        if self.submission.call.is_due(now)
            && let Some(submission) = self.record.as_ref().and_then(super::JobRecord::submission)
        {
            let call = self.next_call();
            self.submission.call.goes_out(call, now);
            step.effect(Effect::Submit {
                call,
                submission: Box::new(submission),
            });
        }
    }

    fn not_submitted(&self, now: Now, job: &super::JobRecord, why: &str) -> Ended {
        ending::not_submitted(&self.config.hub_url, why, &job.taken, self.wall(now))
    }

    /// Takes the hub's answer to the submission.
    pub(super) fn submit_answered(
        &mut self,
        now: Now,
        call: CallId,
        answer: Result<JobView, HubFailure>,
        step: &mut Step,
    ) {
        if self.submission.call.answered(call).is_none() {
            return;
        }
        match answer {
            Ok(view) => {
                self.relay.answered();
                self.keep(Record::Submitted { hub_job: view.id }, step);
                step.effect(Effect::Note(Note::Submitted));
                self.viewed(now, view, step);
            }
            Err(failure) if failure.is_retryable() => {
                let urgency = self.urgency();
                self.submission
                    .call
                    .fail(now, &failure, urgency, &mut self.spread);
                self.submission.last_failure = failure.message.clone();
                self.submission.unsure = true;
                self.note_hub("submission", failure, step);
            }
            Err(failure) => self.submission_refused(now, failure, step),
        }
    }

    /// A refusal fails the job (ERR-30). The hub holds nothing of it then, for it looks first whether
    /// it was given the same before: its 403, 404, 410 and 413 are for a submission it does not know
    /// (a 400 too: the same body was no better before). But a 401 comes from before that look, and a
    /// status of nobody's own may come from another program: where the hub may hold the job from an
    /// earlier try, it is asked until it says so, and the job then stopped and settled (STATE-21). With
    /// a 409 it says so at once, and which job: one of this very request, given with another body by an
    /// earlier version of this program perhaps (API-48).
    fn submission_refused(&mut self, now: Now, failure: HubFailure, step: &mut Step) {
        let Some(job) = &self.record else {
            return;
        };
        let says_nothing = matches!(
            failure.code,
            Some(ErrorCode::Unauthorized | ErrorCode::Other)
        );
        let abandoned = job.abandoned;
        let held = failure
            .job
            .filter(|_| failure.code == Some(ErrorCode::Conflict));
        let at = self.wall(now);
        let ended = ending::refused(&failure, &self.config.hub_url, &job.taken, at);
        if let Some(hub_job) = held {
            step.effect(Effect::Note(Note::Refused(failure)));
            self.keep(Record::Abandoned, step);
            self.keep(Record::Submitted { hub_job }, step);
            return self.end(now, ended, step);
        }
        if !(says_nothing && (self.submission.unsure || abandoned)) {
            step.effect(Effect::Note(Note::Refused(failure)));
            return self.refuse(now, ended, step);
        }
        let urgency = self.urgency();
        self.submission
            .call
            .fail(now, &failure, urgency, &mut self.spread);
        self.note_hub("submission", failure, step);
        if !abandoned {
            step.effect(Effect::Note(Note::Abandoned));
            self.keep(Record::Abandoned, step);
        }
        self.end(now, ended, step);
    }

    /// Moments at which the submission is due.
    pub(super) fn submission_deadlines(&self) -> [Option<Now>; 2] {
        match self.record.as_ref().filter(|job| needs_submission(job)) {
            Some(job) if job.abandoned => [self.submission.call.due(), None],
            Some(_) => [self.submission.call.due(), Some(self.submission.until)],
            None => [None, None],
        }
    }
}

fn needs_submission(job: &super::JobRecord) -> bool {
    job.hub_job.is_none() && !job.refused
}
