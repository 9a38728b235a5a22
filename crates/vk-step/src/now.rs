use std::time::Duration;

/// A moment on a monotonic clock, in milliseconds from an origin of the process's own.
///
/// Two processes' moments cannot be compared, nor two lives of the same process: what must survive
/// a restart is kept as a remaining duration or as the edge's wall-clock reading, never as a `Now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Now(u64);

impl Now {
    /// The origin of the clock.
    pub const ZERO: Now = Now(0);

    /// A moment `ms` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Now {
        Now(ms)
    }

    /// Milliseconds since the origin.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The moment `by` later; the far end of the clock where that would overflow. A part of a
    /// millisecond counts as a whole one, so that a deadline is never early.
    #[must_use]
    pub fn after(self, by: Duration) -> Now {
        let whole = u64::try_from(by.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Now(self.0.saturating_add(whole))
    }

    /// How long ago `earlier` was; zero where it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Now) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// How long until `later`; zero where it has passed.
    #[must_use]
    pub const fn until(self, later: Now) -> Duration {
        later.since(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_never_early_and_never_wraps() {
        let now = Now::from_millis(5);
        assert_eq!(now.after(Duration::from_micros(1)), Now::from_millis(6));
        assert_eq!(now.after(Duration::from_millis(1)), Now::from_millis(6));
        assert_eq!(now.after(Duration::MAX), Now::from_millis(u64::MAX));
    }

    #[test]
    fn differences_stop_at_zero() {
        let (a, b) = (Now::from_millis(3), Now::from_millis(9));
        assert_eq!(b.since(a), Duration::from_millis(6));
        assert_eq!(a.since(b), Duration::ZERO);
        assert_eq!(a.until(b), Duration::from_millis(6));
    }
}
