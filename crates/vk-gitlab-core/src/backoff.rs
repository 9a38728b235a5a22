//! Waits that grow, and waits that differ.

use std::time::Duration;

/// A wait that doubles with every failure up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits of `first`, twice `first` and so on, none above `most`.
    #[must_use]
    pub const fn new(first: Duration, most: Duration) -> Backoff {
        Backoff {
            first,
            most,
            failures: 0,
        }
    }

    /// Counts a failure and says how long to wait.
    pub fn fail(&mut self) -> Duration {
        let factor = 2u32.saturating_pow(self.failures.min(31));
        self.failures = self.failures.saturating_add(1);
        self.first.saturating_mul(factor).min(self.most)
    }

    /// Failures since the last success.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Starts over.
    pub fn succeed(&mut self) {
        self.failures = 0;
    }
}

/// A sequence of numbers that spreads waits, determined by its seed (splitmix64). The seed is drawn
/// by the edge, so that daemons started together do not ask together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread(u64);

impl Spread {
    /// The sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Spread {
        Spread(seed)
    }

    /// The next number.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A wait from `least` to `most`, both included, in whole milliseconds.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let width = most.saturating_sub(least).as_millis();
        let width = u64::try_from(width).unwrap_or(u64::MAX - 1);
        least + Duration::from_millis(self.next() % (width.saturating_add(1)))
    }

    /// `wait` and up to a quarter of it more: never shorter than asked.
    pub fn above(&mut self, wait: Duration) -> Duration {
        self.between(wait, wait.saturating_add(wait / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_doubles_to_its_limit_and_starts_over() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let waits: Vec<u64> = (0..8).map(|_| backoff.fail().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(backoff.failures(), 8);
        backoff.succeed();
        assert_eq!(backoff.fail(), Duration::from_secs(1));
    }

    #[test]
    fn a_backoff_survives_more_failures_than_it_can_count() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::MAX);
        for _ in 0..100 {
            backoff.fail();
        }
        assert_eq!(backoff.fail(), Duration::from_secs(1 << 31));
    }

    #[test]
    fn a_spread_stays_in_its_bounds_and_differs_by_seed() {
        let (least, most) = (Duration::from_millis(250), Duration::from_millis(1000));
        let mut one = Spread::new(1);
        let mut two = Spread::new(2);
        let first: Vec<_> = (0..200).map(|_| one.between(least, most)).collect();
        let other: Vec<_> = (0..200).map(|_| two.between(least, most)).collect();
        assert!(first.iter().all(|wait| (least..=most).contains(wait)));
        assert_ne!(first, other);
        assert!(first.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
