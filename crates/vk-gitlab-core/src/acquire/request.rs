//! The job request: its slot, its sending, and what GitLab's answer does (GL-05 to GL-08, GL-48).

use std::time::Duration;

use vk_step::Now;

use super::gates::Gate;
use super::lane::{Holding, Lane, Requesting};
use super::machine::Acquire;
use super::{Effect, LaneId, Note, RequestAnswer, RequestOutcome, Step};
use crate::{NewJob, WithoutReservation};

/// A 204 faster than this was not held.
const QUICK: Duration = Duration::from_secs(1);
/// The bounds of the pause after a 409 (GL-48).
const AFTER_CONFLICT: (Duration, Duration) =
    (Duration::from_millis(250), Duration::from_millis(1000));
/// Conflicts in a row after which `check_interval` is added.
const CONFLICTS: u32 = 10;

/// What recent answers say of how soon to ask again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    quick: u32,
    conflicts: u32,
}

impl Pace {
    /// Whether to ask again at once after a 204 (FLOW-24, GL-45). One without
    /// `X-GitLab-Last-Update` was held, or woken; where holding is as good as off, such answers
    /// come quickly each time, and only the first is believed.
    fn no_job(&mut self, took: Duration, has_last_update: bool) -> bool {
        self.conflicts = 0;
        if has_last_update || took >= QUICK {
            self.quick = 0;
            return !has_last_update;
        }
        self.quick = self.quick.saturating_add(1);
        self.quick == 1
    }

    /// Another answer than 204 and 409.
    fn other(&mut self) {
        *self = Pace::default();
    }

    /// Counts a 409; whether there have been too many in a row.
    fn conflict(&mut self) -> bool {
        self.conflicts = self.conflicts.saturating_add(1);
        self.conflicts > CONFLICTS
    }
}

impl Acquire {
    /// Takes the answer to [`Effect::TakeSlot`]: with the slot, the request goes out, if everything
    /// that lets it still holds (ADM-07, ADM-39).
    pub(super) fn slot_answered(&mut self, now: Now, lane: LaneId, taken: bool, step: &mut Step) {
        let gate = self.gate(now);
        let Some(index) = self.index(lane) else {
            return;
        };
        let Some(Lane::TakingSlot(held)) = self.lanes.get(index).cloned() else {
            if taken {
                step.effect(Effect::ReturnSlot);
            }
            return;
        };
        let next = if !taken {
            self.slot_free = false;
            self.slot_wish_ends();
            self.give_back(now, &held)
        } else if gate == Gate::Open && held.covers_a_request(now) {
            self.slot_wish_ends();
            self.verify.contact(now);
            step.effect(Effect::RequestJob {
                lane,
                reservation: held.reservation,
                last_update: self.last_update.next(now),
            });
            Lane::Requesting(Requesting {
                cover: Ok(held),
                sent: now,
            })
        } else {
            step.effect(Effect::ReturnSlot);
            Lane::Holding(Holding {
                held,
                not_before: now,
                renew: true,
                renewed: false,
            })
        };
        if let Some(place) = self.lanes.get_mut(index) {
            *place = next;
        }
    }

    /// Takes GitLab's answer to a job request.
    pub(super) fn job_answered(
        &mut self,
        now: Now,
        lane: LaneId,
        answer: RequestAnswer,
        step: &mut Step,
    ) {
        let Some(index) = self.index(lane) else {
            return;
        };
        let Some(Lane::Requesting(requesting)) = self.lanes.get(index).cloned() else {
            return;
        };
        let has_last_update = answer.last_update.is_some();
        self.last_update.answered(answer.last_update);
        self.heard(now, &answer.outcome);
        let next = match answer.outcome {
            RequestOutcome::Job(job) => self.job_came(now, requesting, job, step),
            outcome => {
                step.effect(Effect::ReturnSlot);
                self.no_job_came(now, requesting, outcome, has_last_update, step)
            }
        };
        if let Some(place) = self.lanes.get_mut(index) {
            *place = next;
        }
    }

    fn heard(&mut self, now: Now, outcome: &RequestOutcome) {
        let status = match outcome {
            RequestOutcome::Job(_) | RequestOutcome::Undecodable { .. } => 201,
            RequestOutcome::Status { status, .. } => *status,
            RequestOutcome::Failed { .. } => 0,
        };
        self.last_answer = Some((status, now));
        if status != 0 && status < 500 {
            self.verify.contact(now);
        }
    }

    /// A job: handed on at once with its reservation, or with how that was lost (ADM-14, ADM-28).
    fn job_came(
        &mut self,
        now: Now,
        requesting: Requesting,
        job: Box<NewJob>,
        step: &mut Step,
    ) -> Lane {
        self.health.well();
        self.pace.other();
        self.jobs = self.jobs.saturating_add(1);
        let reservation = match requesting.cover {
            Ok(held) if !held.lapsed(now) => Ok(held.reservation),
            Ok(held) => {
                self.note_lost(&held, WithoutReservation::Lapsed, step);
                self.releases.add(now, held.reservation, held.until());
                Err(WithoutReservation::Lapsed)
            }
            Err(why) => Err(why),
        };
        step.effect(Effect::TakeJob { job, reservation });
        let pause = if self.config.strict_check_interval {
            self.config.check_interval
        } else {
            Duration::ZERO
        };
        Lane::Idle {
            not_before: now.after(pause),
        }
    }

    fn no_job_came(
        &mut self,
        now: Now,
        requesting: Requesting,
        outcome: RequestOutcome,
        has_last_update: bool,
        step: &mut Step,
    ) -> Lane {
        let soon = now.after(self.config.check_interval);
        match outcome {
            RequestOutcome::Status { status: 204, .. } => {
                self.health.well();
                let took = now.since(requesting.sent);
                let at_once = self.pace.no_job(took, has_last_update);
                again(requesting, if at_once { now } else { soon }, true)
            }
            RequestOutcome::Status { status: 409, .. } => {
                self.health.well();
                let from = if self.pace.conflict() { soon } else { now };
                let pause = self.spread.between(AFTER_CONFLICT.0, AFTER_CONFLICT.1);
                again(requesting, from.after(pause), false)
            }
            RequestOutcome::Status { status: 403, .. } => {
                self.pace.other();
                if self.verify.token_taken() != Some(false) {
                    step.effect(Effect::Note(Note::TokenRefused));
                }
                self.verify.refused(now);
                again(requesting, now, true)
            }
            RequestOutcome::Status {
                status: status @ (429 | 503),
                retry_after,
            } => {
                self.pace.other();
                let pause = self.health.wait(now, retry_after, &mut self.spread);
                step.effect(Effect::Note(Note::BackOff { status, pause }));
                again(requesting, now, true)
            }
            RequestOutcome::Status { status, .. } => {
                self.ill(
                    now,
                    format!("GitLab answered {status} to a job request"),
                    step,
                );
                again(requesting, soon, true)
            }
            RequestOutcome::Undecodable { why } => {
                step.effect(Effect::Note(Note::RequestLost { why: why.clone() }));
                self.ill(now, why, step);
                again(requesting, soon, true)
            }
            RequestOutcome::Failed { why, sent } => {
                if sent {
                    step.effect(Effect::Note(Note::RequestLost { why: why.clone() }));
                }
                self.ill(now, why, step);
                again(requesting, soon, true)
            }
            // A job is `job_came`'s; one that gets here is not dropped.
            RequestOutcome::Job(job) => self.job_came(now, requesting, job, step),
        }
    }

    fn ill(&mut self, now: Now, why: String, step: &mut Step) {
        self.pace.other();
        if let Some((failures, pause)) = self.health.ill(now) {
            step.effect(Effect::Note(Note::Unhealthy {
                failures,
                pause,
                why,
            }));
        }
    }
}

/// The lane after a request that brought no job: it keeps what is left of its reservation.
fn again(requesting: Requesting, not_before: Now, renew: bool) -> Lane {
    match requesting.cover {
        Ok(held) => Lane::Holding(Holding {
            held,
            not_before,
            renew,
            renewed: false,
        }),
        Err(_) => Lane::Idle { not_before },
    }
}
