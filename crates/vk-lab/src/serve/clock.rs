//! What time it is for the stand-in: the host's, moved by what `advance` asks for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A clock that can be moved forwards.
#[derive(Debug, Default)]
pub(super) struct Clock {
    ahead_ms: AtomicU64,
}

impl Clock {
    /// Milliseconds since the Unix epoch.
    pub(super) fn now(&self) -> u64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let real = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        real.saturating_add(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// Moves it forwards; at most ten years in all.
    pub(super) fn advance(&self, ms: u64) {
        const MOST: u64 = 10 * 365 * 86_400_000;
        let moved = self
            .ahead_ms
            .load(Ordering::Relaxed)
            .saturating_add(ms)
            .min(MOST);
        self.ahead_ms.store(moved, Ordering::Relaxed);
    }
}
