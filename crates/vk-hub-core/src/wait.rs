//! Requests that are held: long polls, renewals, reservation requests.

use std::collections::BTreeSet;
use std::time::Duration;

use vk_hub_proto::limit::{OUTPUT_ANSWER_BYTES, WAIT_SECS};
use vk_hub_proto::{JobId, ReservationId};
use vk_step::Now;

use crate::class::ClassId;
use crate::fleet::{Fleet, Out};
use crate::request::RequestKey;
use crate::timers::Timer;
use crate::{Answer, Effect, Input, OutputAnswer, Refusal, RequestHandle};

/// What a held request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A revision of a placement's capacity.
    Capacity(ClassId),
    /// A revision of a job.
    View(JobId),
    /// A turn of a job past a revision.
    Turn(JobId, u64),
    /// Bytes of a job's output past an offset.
    Output(JobId, u64),
    /// A node's answer to a renewal.
    Renew(ReservationId),
    /// A node for a reservation.
    Reserve(RequestKey),
}

impl Fleet {
    pub(crate) fn answer(&mut self, to: RequestHandle, answer: Answer, out: &mut Out) {
        if self.waits.remove(&to).is_some() {
            self.timers.clear(Timer::Wait(to));
        }
        out.effect(Effect::Answer { to, answer });
    }

    pub(crate) fn refuse(&mut self, to: RequestHandle, refusal: Refusal, out: &mut Out) {
        self.answer(to, Answer::Refused(refusal), out);
    }

    /// Holds a request for at most `wait_secs`, cut to a minute (API-12); whether there is room
    /// for it. The caller puts the handle where it is woken.
    pub(crate) fn hold(&mut self, now: Now, to: RequestHandle, wait: Wait, wait_secs: u32) -> bool {
        if wait_secs == 0 || self.waits.len() >= self.settings.waiting_requests {
            return false;
        }
        self.waits.insert(to, wait);
        let until = now.after(Duration::from_secs(u64::from(wait_secs.min(WAIT_SECS))));
        self.timers.set(Timer::Wait(to), until);
        true
    }

    /// A held request's time is over: the same answer as without waiting (API-16).
    pub(crate) fn on_wait_over(&mut self, to: RequestHandle, out: &mut Out) {
        let Some(wait) = self.release_wait(to) else {
            return;
        };
        let answer = match wait {
            Wait::Capacity(class) => self.capacity_answer(class),
            Wait::View(job) | Wait::Turn(job, _) => self.view_answer(job),
            Wait::Output(job, offset) => self.output_answer(job, offset),
            Wait::Renew(reservation) => Answer::Refused(Refusal::unavailable(format!(
                "the node of reservation {reservation} did not answer the renewal in time"
            ))),
            // These have a deadline of their own.
            Wait::Reserve(_) => return,
        };
        out.effect(Effect::Answer { to, answer });
    }

    /// A client hung up: nobody waits any more.
    pub(crate) fn on_hung_up(&mut self, to: RequestHandle) {
        if let Some(Wait::Reserve(seek)) = self.release_wait(to) {
            self.seek_hung_up(seek);
        }
    }

    /// Takes a handle out of everything that would wake it.
    fn release_wait(&mut self, to: RequestHandle) -> Option<Wait> {
        let wait = self.waits.remove(&to)?;
        self.timers.clear(Timer::Wait(to));
        match wait {
            Wait::Capacity(class) => {
                if let Some(class) = self.classes.get_mut(class) {
                    class.polls.remove(&to);
                }
            }
            Wait::View(job) | Wait::Turn(job, _) => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.viewers.remove(&to);
                }
            }
            Wait::Output(job, _) => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.readers.remove(&to);
                }
            }
            Wait::Renew(reservation) => {
                if let Some(reservation) = self.reservations.get_mut(&reservation) {
                    reservation.nobody_waits(to);
                }
            }
            Wait::Reserve(_) => {}
        }
        Some(wait)
    }

    pub(crate) fn capacity_answer(&self, class: ClassId) -> Answer {
        self.classes.get(class).map_or_else(
            || Answer::Refused(Refusal::unavailable("the placement was forgotten")),
            |class| {
                let mut capacity = class.capacity();
                let pool = &class.placement.pool;
                capacity.no_nodes = capacity.fits == 0
                    && !self.nodes.values().any(|node| node.pools.contains(pool));
                Answer::Capacity(capacity)
            },
        )
    }

    pub(crate) fn view_answer(&self, job: JobId) -> Answer {
        self.jobs.get(&job).map_or_else(
            || Answer::Refused(no_such_job(job)),
            |found| Answer::View(found.view(job)),
        )
    }

    /// What there is of an output from `offset` on (API-36 to API-40, API-63).
    pub(crate) fn output_answer(&self, job: JobId, offset: u64) -> Answer {
        let Some(found) = self.jobs.get(&job) else {
            return Answer::Refused(no_such_job(job));
        };
        if found.settled {
            return Answer::Refused(Refusal::not_found(format!(
                "job {job} was settled and its output dropped"
            )));
        }
        let length = found.output.durable();
        let Some(left) = length.checked_sub(offset) else {
            return Answer::PastEnd { length };
        };
        let len = left.min(OUTPUT_ANSWER_BYTES as u64);
        Answer::Output(OutputAnswer {
            job,
            offset,
            len,
            length,
            complete: found.phase.is_finished() && len == left,
        })
    }

    /// Answers who waits for something that changed in this step: each once, with the state at
    /// its end.
    pub(crate) fn announce(&mut self, out: &mut Out) {
        for class in std::mem::take(&mut self.moved) {
            self.announce_capacity(class, out);
        }
        for job in std::mem::take(&mut self.changed) {
            let Some(changed) = self.jobs.get_mut(&job) else {
                continue;
            };
            let viewers = std::mem::take(&mut changed.viewers).into_iter();
            let (on, told): (_, BTreeSet<_>) = viewers.partition(|to| match self.waits.get(to) {
                Some(wait @ Wait::Turn(_, after)) => !changed.has_news(*wait, *after),
                _ => false,
            });
            changed.viewers = on;
            for to in told {
                let answer = self.view_answer(job);
                self.answer(to, answer, out);
            }
        }
    }

    fn announce_capacity(&mut self, id: ClassId, out: &mut Out) {
        let Some(class) = self.classes.get_mut(id) else {
            return;
        };
        if !class.moved() {
            return;
        }
        class.announce(self.clock.next_revision());
        for to in std::mem::take(&mut class.polls) {
            let answer = self.capacity_answer(id);
            self.answer(to, answer, out);
        }
    }

    /// The store failed: nobody is promised anything from here on.
    pub(crate) fn on_store_failed(&mut self, why: String, out: &mut Out) {
        for to in std::mem::take(&mut self.waits).into_keys() {
            let answer = Answer::Refused(cannot_keep(&why));
            out.effect(Effect::Answer { to, answer });
        }
        for session in std::mem::take(&mut self.sessions).into_keys() {
            self.close(session, &why, out);
        }
        for session in std::mem::take(&mut self.relay_sessions).into_keys() {
            close_relay(session, &why, out);
        }
        self.timers.clear_all();
        self.stirred.clear();
        out.effect(Effect::Stopped { why: why.clone() });
        self.stopped = Some(why);
    }

    fn close(&mut self, session: crate::SessionHandle, why: &str, out: &mut Out) {
        out.effect(Effect::Close {
            session,
            code: vk_hub_proto::node_session::RefusedCode::Internal,
            reason: format!("the hub cannot keep its records: {why}"),
        });
    }

    /// After [`Input::StoreFailed`]: every request is refused and every session closed.
    pub(crate) fn refuse_all(&mut self, input: &Input, out: &mut Out) {
        let why = self.stopped.clone().unwrap_or_default();
        match input {
            Input::Request { to, .. } | Input::Operator { to, .. } => {
                let answer = Answer::Refused(cannot_keep(&why));
                out.effect(Effect::Answer { to: *to, answer });
            }
            Input::SessionOpened { session, .. } => self.close(*session, &why, out),
            Input::RelayOpened { session, .. } => close_relay(*session, &why, out),
            _ => {}
        }
    }
}

fn close_relay(session: crate::SessionHandle, why: &str, out: &mut Out) {
    out.effect(Effect::CloseRelay {
        session,
        code: vk_hub_proto::node_session::RefusedCode::Internal,
        reason: format!("the hub cannot keep its records: {why}"),
    });
}

pub(crate) fn no_such_job(job: JobId) -> Refusal {
    Refusal::not_found(format!("there is no job {job}"))
}

fn cannot_keep(why: &str) -> Refusal {
    Refusal::unavailable(format!("the hub cannot keep its records: {why}"))
}
