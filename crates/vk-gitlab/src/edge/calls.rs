//! What comes back to the loop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vk_gitlab_core::HubFailure;
use vk_gitlab_core::acquire;
use vk_gitlab_core::job::{self, CallId, OutputRead};

use super::expiry::Verified;
use super::runner::Seat;

/// Something happened.
pub(super) enum Event {
    /// For a runner's acquire core.
    Acquire(Seat, acquire::Input),
    /// For a job's core.
    Job(u64, job::Input),
    /// Output was fetched for a job.
    Fetched {
        key: u64,
        call: CallId,
        answer: Result<(OutputRead, Arc<[u8]>), HubFailure>,
    },
    /// GitLab took a runner's token, and says this of it.
    Verified(Seat, Verified),
    /// State files were written, or were not.
    Written(Written),
    /// The time has come to write a runner's state file that could not be written.
    WriteAgain(usize),
}

/// What became of state files that were written together.
pub(super) struct Written {
    /// Whose they are.
    pub(super) runners: BTreeSet<usize>,
    /// Whose could not be written, and why.
    pub(super) failed: BTreeMap<usize, String>,
}
