//! The wall clock, for what GitLab and people want dated.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970; 0 for a clock before that.
#[must_use]
pub(crate) fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
