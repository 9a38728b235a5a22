//! The end of a job's life at the hub: settled, history, forgotten.

use std::time::Duration;

use vk_hub_proto::JobId;
use vk_step::Now;

use crate::fleet::{Fleet, Out};
use crate::session::millis;
use crate::timers::Timer;
use crate::wait::no_such_job;
use crate::{Answer, Effect, Record, Refusal};

/// Records of one kind a step writes at most when it tidies up.
const AT_ONCE: usize = 64;
/// Between two records of the clock.
const CLOCK: Duration = Duration::from_secs(30);

impl Fleet {
    /// The outcome was delivered: the output goes, the record stays (API-44, API-63).
    pub(crate) fn settle(&mut self, id: JobId, out: &mut Out) -> Result<Answer, Refusal> {
        let job = self.jobs.get(&id).ok_or_else(|| no_such_job(id))?;
        if !job.phase.is_finished() {
            let why = format!("job {id} has not ended: cancel it first");
            return Err(Refusal::conflict(why));
        }
        if !job.settled {
            self.keep(Record::JobSettled { job: id }, out);
            self.timers.clear(Timer::Unsettled(id));
            self.bump(id);
            out.effect(Effect::DropOutput { job: id });
            self.forget_oldest(out);
        }
        Ok(Answer::Settled)
    }

    /// Where the operator wants it, a job that ended at `ended_ms` is not kept for ever.
    pub(crate) fn watch_unsettled(&mut self, id: JobId, ended_ms: u64) {
        if let Some(after) = self.settings.settle_after {
            let end_ms = ended_ms.saturating_add(millis(after));
            let at = self.clock.moment(end_ms);
            self.timers.set(Timer::Unsettled(id), at);
        }
    }

    pub(crate) fn on_unsettled(&mut self, id: JobId, out: &mut Out) {
        // One that is gone or was settled meanwhile has nothing left to do.
        let _ = self.settle(id, out);
    }

    /// The oldest settled jobs beyond the history's length are forgotten (API-71).
    fn forget_oldest(&mut self, out: &mut Out) -> bool {
        for _ in 0..AT_ONCE {
            let Some(id) = self.history.beyond(self.settings.job_history) else {
                return false;
            };
            self.forget(id, out);
        }
        true
    }

    fn forget(&mut self, id: JobId, out: &mut Out) {
        let Some(job) = self.jobs.get(&id) else {
            return self.history.remove(id);
        };
        let record = Record::JobForgotten {
            job: id,
            owner: job.made_by.owner,
            request: job.made_by.request,
            digest: job.digest,
            at_ms: job.at_ms,
        };
        self.keep(record, out);
        self.arm_forgetting();
    }

    /// More settled jobs than the history holds were opened.
    pub(crate) fn trim_history(&mut self, now: Now, out: &mut Out) {
        if self.forget_oldest(out) {
            self.timers
                .set(Timer::History, now.after(Duration::from_millis(1)));
        }
    }

    /// Sets the deadline at which the oldest remembered request's day is over, or there are too
    /// many.
    pub(crate) fn arm_forgetting(&mut self) {
        if let Some((at_ms, _)) = self.memory.oldest() {
            let day = millis(self.settings.remember_requests);
            let too_many = self.memory.without_job() > self.settings.remembered_requests;
            let at_ms = if too_many {
                0
            } else {
                at_ms.saturating_add(day)
            };
            self.timers.set(Timer::Requests, self.clock.moment(at_ms));
        }
    }

    pub(crate) fn forget_requests(&mut self, now: Now, out: &mut Out) {
        let day = millis(self.settings.remember_requests);
        let served = self.clock.served_ms(now);
        for _ in 0..AT_ONCE {
            let Some((at_ms, key)) = self.memory.oldest() else {
                return;
            };
            let too_many = self.memory.without_job() > self.settings.remembered_requests;
            if !too_many && at_ms.saturating_add(day) > served {
                return self.arm_forgetting();
            }
            let record = Record::RequestForgotten {
                owner: key.owner,
                request: key.request,
            };
            self.keep(record, out);
        }
        self.timers
            .set(Timer::Requests, now.after(Duration::from_millis(1)));
    }

    /// While there is something whose time counts, the clock is kept.
    pub(crate) fn arm_clock(&mut self, now: Now) {
        self.timers.arm(Timer::Clock, now.after(CLOCK));
    }

    pub(crate) fn on_clock(&mut self, now: Now, out: &mut Out) {
        let record = self.clock.record(now);
        out.record(record);
        if self.unfinished > 0 || self.memory.oldest().is_some() {
            self.arm_clock(now);
        }
    }
}
