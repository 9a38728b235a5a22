//! How often state is written: at once while that is seldom, and otherwise so often that the disk is
//! not what the daemon waits for, with the changes of many jobs in each write.

use std::time::Duration;

use tokio::time::Instant;

/// The time between two writes, where there is always something to write.
const EVERY: Duration = Duration::from_millis(20);
/// Writes that need not wait, after a time without any: more than a job alone asks for.
const AT_ONCE: u32 = 8;

/// When the next write may begin.
#[derive(Debug)]
pub(super) struct Pace {
    due: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace { due: rested(now) }
    }

    /// When the next write may begin: most often long ago.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// A write begins.
    pub(super) fn begins(&mut self, now: Instant) {
        self.due = self.due.max(rested(now)) + EVERY;
    }
}

/// How far back the next write may lie due: what is not used in longer is not saved up.
fn rested(now: Instant) -> Instant {
    now.checked_sub(EVERY * (AT_ONCE - 1)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes as often as it may, for so long; when.
    fn writes(pace: &mut Pace, from: Instant, lasts: Duration) -> Vec<Duration> {
        let mut now = from.max(pace.due());
        let mut writes = Vec::new();
        while now < from + lasts {
            pace.begins(now);
            writes.push(now - from);
            now = now.max(pace.due());
        }
        writes
    }

    #[test]
    fn a_few_writes_wait_for_nothing_and_many_come_at_their_pace() {
        let from = Instant::now();
        let mut pace = Pace::new(from);
        let first = writes(&mut pace, from, Duration::from_secs(1));
        assert!(first[..8].iter().all(Duration::is_zero), "{first:?}");
        assert_eq!(first[8..10], [20, 40].map(Duration::from_millis));
        assert_eq!(first.len(), 8 + 49);
        let later = from + Duration::from_secs(2);
        let again = writes(&mut pace, later, Duration::from_millis(1));
        assert_eq!(again.len(), 8, "what is not used is not saved up");
    }
}
