//! Deadlines, soonest first.

use std::collections::{BTreeMap, BTreeSet};

use vk_hub_proto::{JobId, ReservationId};
use vk_step::Now;

/// What a deadline is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A reservation's lease runs out.
    Lease(ReservationId),
    /// A job waited long enough in the ledger.
    Wait(JobId),
    /// A dead job was cleaned up, or never will be.
    CleanUp(JobId),
    /// An unanswered result is sent again.
    Repeat(JobId),
    /// Jobs from the journal may be granted what they wait for.
    Grant,
}

/// At most one deadline a timer.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: BTreeSet<(Now, Timer)>,
    at: BTreeMap<Timer, Now>,
}

impl Timers {
    /// Sets or moves a deadline.
    pub(crate) fn set(&mut self, timer: Timer, at: Now) {
        self.clear(timer);
        self.queue.insert((at, timer));
        self.at.insert(timer, at);
    }

    /// Forgets a deadline; one that is not set is no error.
    pub(crate) fn clear(&mut self, timer: Timer) {
        if let Some(at) = self.at.remove(&timer) {
            self.queue.remove(&(at, timer));
        }
    }

    /// When the soonest comes.
    pub(crate) fn next(&self) -> Option<Now> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes out the soonest that has come.
    pub(crate) fn take_due(&mut self, now: Now) -> Option<Timer> {
        let (at, timer) = *self.queue.first()?;
        if at > now {
            return None;
        }
        self.clear(timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_deadline_comes_once_at_its_new_time() {
        let job = JobId::from_bytes([1; 16]);
        let mut timers = Timers::default();
        timers.set(Timer::Wait(job), Now::from_millis(5));
        timers.set(Timer::Wait(job), Now::from_millis(9));
        timers.set(Timer::Repeat(job), Now::from_millis(7));
        assert_eq!(timers.next(), Some(Now::from_millis(7)));
        assert_eq!(timers.take_due(Now::from_millis(6)), None);
        let all = Now::from_millis(9);
        assert_eq!(timers.take_due(all), Some(Timer::Repeat(job)));
        assert_eq!(timers.take_due(all), Some(Timer::Wait(job)));
        assert_eq!(timers.take_due(all), None);
        assert_eq!(timers.next(), None);
    }
}
