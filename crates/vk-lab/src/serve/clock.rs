//! What time it is for the stand-in: the host's, moved by what `advance` and `skew` ask for.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Furthest it can be moved either way: ten years.
const MOST_MS: i64 = 10 * 365 * 86_400_000;

/// A clock that can be moved.
#[derive(Debug, Default)]
pub(super) struct Clock {
    off_ms: AtomicI64,
}

impl Clock {
    /// Milliseconds since the Unix epoch.
    pub(super) fn now(&self) -> u64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let real = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        real.saturating_add_signed(self.off_ms.load(Ordering::Relaxed))
    }

    /// Moves it forwards.
    pub(super) fn advance(&self, ms: u64) {
        self.shift(i64::try_from(ms).unwrap_or(MOST_MS));
    }

    /// Moves it either way.
    pub(super) fn skew(&self, secs: i64) {
        self.shift(secs.saturating_mul(1_000));
    }

    fn shift(&self, ms: i64) {
        let moved = |off: i64| Some(off.saturating_add(ms).clamp(-MOST_MS, MOST_MS));
        let _ = self
            .off_ms
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved);
    }
}
