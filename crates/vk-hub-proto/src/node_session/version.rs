//! Versions of the session and how two sides agree on one (DISP-04, DISP-05, DISP-69).

use serde::{Deserialize, Serialize};

/// The published range: monitoring and steering (DISP-04).
pub const PROTOCOL: VersionRange = VersionRange { min: 1, max: 2 };
/// From here on a node is steered.
pub const STEERING: u32 = 2;
/// From here on a node takes jobs.
pub const JOBS: u32 = 3;

/// The versions a side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRange {
    /// The lowest.
    pub min: u32,
    /// The highest.
    pub max: u32,
}

impl VersionRange {
    /// What both speak at best; none where the ranges do not meet.
    #[must_use]
    pub fn highest_common(self, other: VersionRange) -> Option<u32> {
        let (low, high) = (self.min.max(other.min), self.max.min(other.max));
        (low <= high).then_some(high)
    }
}
