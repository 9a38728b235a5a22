//! Served time and revisions: the two numbers that only rise, over all lives of the hub.

use std::time::Duration;

use vk_step::Now;

use crate::Record;

/// Revisions set aside by one record.
const BLOCK: u64 = 1_000_000;

/// Served milliseconds and revisions.
#[derive(Debug)]
pub(crate) struct Clock {
    opened: Now,
    window: Duration,
    /// Served milliseconds when this life began.
    base_ms: u64,
    next_revision: u64,
    revisions_below: u64,
    unrecorded: bool,
}

impl Clock {
    /// A clock as it was last kept; `wall_secs` is the edge's reading (API-65).
    pub(crate) fn new(opened: Now, window: Duration, wall_secs: u64, kept: (u64, u64)) -> Clock {
        let (base_ms, below) = kept;
        let next = wall_secs.saturating_mul(1000).max(below).max(1);
        Clock {
            opened,
            window,
            base_ms,
            next_revision: next,
            revisions_below: next,
            unrecorded: false,
        }
    }

    /// Served milliseconds at a moment of this life. The first minute does not count: nodes need
    /// it to come back (FAIL-30).
    pub(crate) fn served_ms(&self, now: Now) -> u64 {
        let began = self.opened.after(self.window);
        self.base_ms
            .saturating_add(now.as_millis().saturating_sub(began.as_millis()))
    }

    /// The moment at which so many milliseconds have been served; the start where they had been.
    pub(crate) fn moment(&self, served_ms: u64) -> Now {
        match served_ms.checked_sub(self.base_ms) {
            None | Some(0) => self.opened,
            Some(ms) => self
                .opened
                .after(self.window)
                .after(Duration::from_millis(ms)),
        }
    }

    /// A number above all given before.
    pub(crate) fn next_revision(&mut self) -> u64 {
        if self.next_revision >= self.revisions_below {
            self.revisions_below = self.next_revision.saturating_add(BLOCK);
            self.unrecorded = true;
        }
        let revision = self.next_revision;
        self.next_revision = self.next_revision.saturating_add(1);
        revision
    }

    /// The record that must go with this step, if a block of revisions was begun.
    pub(crate) fn take_unrecorded(&mut self, now: Now) -> Option<Record> {
        self.unrecorded.then(|| self.record(now))
    }

    /// The clock as it is now.
    pub(crate) fn record(&mut self, now: Now) -> Record {
        self.unrecorded = false;
        Record::Clock {
            served_ms: self.served_ms(now),
            revisions_below: self.revisions_below,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// FAIL-30
    #[test]
    fn the_first_minute_of_a_life_is_not_served() {
        let clock = Clock::new(Now::from_millis(1_000), MINUTE, 0, (500, 0));
        assert_eq!(clock.served_ms(Now::from_millis(61_000)), 500);
        assert_eq!(clock.served_ms(Now::from_millis(61_007)), 507);
        assert_eq!(clock.moment(507), Now::from_millis(61_007));
        assert_eq!(clock.moment(500), Now::from_millis(1_000));
        assert_eq!(clock.moment(3), Now::from_millis(1_000));
    }

    /// API-65
    #[test]
    fn revisions_rise_over_a_restart_even_when_the_wall_clock_went_back() {
        let mut first = Clock::new(Now::ZERO, MINUTE, 1_000, (0, 0));
        let given = first.next_revision();
        assert_eq!(given, 1_000_000);
        let Some(Record::Clock {
            served_ms,
            revisions_below,
        }) = first.take_unrecorded(Now::ZERO)
        else {
            panic!("the first revision sets a block aside");
        };
        assert!(first.take_unrecorded(Now::ZERO).is_none());
        let last = (0..10).map(|_| first.next_revision()).last();
        assert!(first.take_unrecorded(Now::ZERO).is_none());
        let mut second = Clock::new(Now::ZERO, MINUTE, 999, (served_ms, revisions_below));
        assert!(Some(second.next_revision()) > last);
        let mut later = Clock::new(Now::ZERO, MINUTE, 9_000, (served_ms, revisions_below));
        assert_eq!(later.next_revision(), 9_000_000);
    }
}
