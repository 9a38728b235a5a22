//! Deadlines: one a timer, the earliest first.

use std::collections::{BTreeMap, BTreeSet};

use vk_hub_proto::{JobId, NodeId, ReservationId};
use vk_step::Now;

use crate::RequestHandle;
use crate::class::ClassId;
use crate::request::RequestKey;

/// What has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// What a start of the hub leaves to be kept.
    Restart,
    /// The clock's record.
    Clock,
    /// Requests whose day is over.
    Requests,
    /// Settled jobs beyond the history.
    History,
    /// A session's silence.
    Silence(NodeId),
    /// A node is lost for its jobs.
    Lost(NodeId),
    /// An offer without answer.
    Offer(ReservationId),
    /// The end of a lease.
    Lease(ReservationId),
    /// A reservation request's wait.
    Seek(RequestKey),
    /// Nodes that refused may be asked again.
    Round(ClassId),
    /// The end of a job's placing time.
    Place(JobId),
    /// A job well past its timeout.
    Overdue(JobId),
    /// A job that ended and that nobody settled.
    Unsettled(JobId),
    /// A held request.
    Wait(RequestHandle),
}

/// All deadlines.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_timer: BTreeMap<Timer, Now>,
    by_time: BTreeSet<(Now, Timer)>,
}

impl Timers {
    /// Sets or moves a deadline.
    pub(crate) fn set(&mut self, timer: Timer, at: Now) {
        if let Some(before) = self.by_timer.insert(timer, at) {
            self.by_time.remove(&(before, timer));
        }
        self.by_time.insert((at, timer));
    }

    /// Sets a deadline unless there is one.
    pub(crate) fn arm(&mut self, timer: Timer, at: Now) {
        if !self.by_timer.contains_key(&timer) {
            self.set(timer, at);
        }
    }

    /// Takes a deadline away.
    pub(crate) fn clear(&mut self, timer: Timer) {
        if let Some(at) = self.by_timer.remove(&timer) {
            self.by_time.remove(&(at, timer));
        }
    }

    /// Takes the earliest deadline that has come.
    pub(crate) fn due(&mut self, now: Now) -> Option<Timer> {
        let (at, timer) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.by_time.remove(&(at, timer));
        self.by_timer.remove(&timer);
        Some(timer)
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Now> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// No deadline any more.
    pub(crate) fn clear_all(&mut self) {
        self.by_timer.clear();
        self.by_time.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_deadline_fires_once_at_its_new_time() {
        let mut timers = Timers::default();
        let job = Timer::Place(JobId::from_bytes([1; 16]));
        timers.set(job, Now::from_millis(5));
        timers.set(job, Now::from_millis(9));
        timers.arm(job, Now::from_millis(1));
        timers.set(Timer::Clock, Now::from_millis(7));
        assert_eq!(timers.next(), Some(Now::from_millis(7)));
        assert_eq!(timers.due(Now::from_millis(8)), Some(Timer::Clock));
        assert_eq!(timers.due(Now::from_millis(8)), None);
        assert_eq!(timers.due(Now::from_millis(9)), Some(job));
        assert_eq!(timers.next(), None);
        timers.set(job, Now::from_millis(9));
        timers.clear(job);
        assert_eq!(timers.due(Now::from_millis(99)), None);
    }
}
