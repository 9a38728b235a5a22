//! Each life of a process has a monotonic clock of its own.

use vk_step::Now;

/// A life's clock: it began at some number that means nothing to anybody else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started_ms: u64,
    origin_ms: u64,
}

impl Clock {
    /// A clock that reads `origin_ms` at the virtual moment `at_ms`.
    #[must_use]
    pub(crate) const fn starting(at_ms: u64, origin_ms: u64) -> Clock {
        Clock {
            started_ms: at_ms,
            origin_ms,
        }
    }

    /// What the clock reads at a virtual moment.
    #[must_use]
    pub(crate) const fn read(&self, at_ms: u64) -> Now {
        Now::from_millis(self.origin_ms + at_ms.saturating_sub(self.started_ms))
    }

    /// The virtual moment at which the clock reads `then`.
    #[must_use]
    pub(crate) const fn when(&self, then: Now) -> u64 {
        self.started_ms + then.as_millis().saturating_sub(self.origin_ms)
    }
}
