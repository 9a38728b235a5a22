//! Pauses: GitLab is ill (GL-63), or asks to wait (GL-07, GL-08, GL-78).

use std::time::Duration;

use vk_step::Now;

use crate::{Backoff, Spread};

/// The first pause of an unhealthy runner.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// The longest wait GitLab may ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// How GitLab's answers to a runner's job requests have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health {
    limit: u32,
    failures: u32,
    pauses: Backoff,
    asked_to_wait: Backoff,
    unhealthy_until: Option<Now>,
    wait_until: Option<Now>,
}

impl Health {
    pub(super) fn new(limit: u32, longest: Duration) -> Health {
        Health {
            limit: limit.max(1),
            failures: 0,
            pauses: Backoff::new(FIRST_PAUSE.min(longest), longest),
            asked_to_wait: Backoff::new(Duration::from_secs(5), Duration::from_secs(60)),
            unhealthy_until: None,
            wait_until: None,
        }
    }

    /// An answer that shows GitLab well.
    pub(super) fn well(&mut self) {
        self.failures = 0;
        self.pauses.succeed();
        self.asked_to_wait.succeed();
        self.unhealthy_until = None;
    }

    /// A failure; the pause, where one begins, with the failures so far.
    pub(super) fn ill(&mut self, now: Now) -> Option<(u32, Duration)> {
        self.asked_to_wait.succeed();
        self.failures = self.failures.saturating_add(1);
        if self.failures < self.limit {
            return None;
        }
        let pause = self.pauses.fail();
        self.unhealthy_until = Some(now.after(pause));
        Some((self.failures, pause))
    }

    /// GitLab asks to wait; neither well nor ill (GL-78).
    pub(super) fn wait(
        &mut self,
        now: Now,
        retry_after: Option<Duration>,
        spread: &mut Spread,
    ) -> Duration {
        let fallback = self.asked_to_wait.fail();
        let pause = match retry_after.filter(|asked| !asked.is_zero()) {
            Some(asked) => asked.min(LONGEST_RETRY_AFTER),
            None => spread.above(fallback),
        };
        self.wait_until = self.wait_until.max(Some(now.after(pause)));
        pause
    }

    /// Whether failures have made it unhealthy, in a pause or trying after one.
    pub(super) const fn is_unhealthy(&self) -> bool {
        self.failures >= self.limit
    }

    /// When the pause in force ends, if one is.
    pub(super) fn paused_until(&self, now: Now) -> Option<Now> {
        self.unhealthy_until
            .max(self.wait_until)
            .filter(|end| *end > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> Health {
        Health::new(3, Duration::from_secs(3600))
    }

    /// GL-63
    #[test]
    fn three_failures_in_a_row_pause_thirty_seconds_doubling_to_an_hour() {
        let (mut health, now) = (health(), Now::from_millis(7));
        assert_eq!(health.ill(now), None);
        assert_eq!(health.ill(now), None);
        assert!(!health.is_unhealthy());
        let pauses: Vec<u64> = (0..9)
            .map(|_| health.ill(now).expect("a pause").1.as_secs())
            .collect();
        assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
        assert!(health.is_unhealthy());
        health.well();
        assert_eq!(health.paused_until(now), None);
        assert_eq!(health.ill(now), None, "the row starts over");
    }

    /// GL-07, GL-08, GL-78
    #[test]
    fn a_wait_is_as_long_as_asked_or_grows_from_five_seconds_to_sixty() {
        let (mut health, mut spread) = (health(), Spread::new(9));
        let now = Now::from_millis(0);
        assert_eq!(
            health.wait(now, Some(Duration::from_secs(90)), &mut spread),
            Duration::from_secs(90)
        );
        assert_eq!(
            health.paused_until(now),
            Some(now.after(Duration::from_secs(90)))
        );
        health.well();
        for base in [5, 10, 20, 40, 60, 60] {
            let pause = health.wait(now, Some(Duration::ZERO), &mut spread);
            let base = Duration::from_secs(base);
            assert!(pause >= base && pause <= base + base / 4, "{pause:?}");
        }
        assert!(!health.is_unhealthy(), "neither counts as unhealthy");
    }
}
