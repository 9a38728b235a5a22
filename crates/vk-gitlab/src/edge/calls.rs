//! What comes back to the loop.

use std::collections::BTreeSet;
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
        offset: u64,
        answer: Result<(OutputRead, Arc<[u8]>), HubFailure>,
    },
    /// GitLab took a runner's token, and says this of it.
    Verified(Seat, Verified),
    /// These runners' state files were written, or this one was not.
    Written(Result<BTreeSet<usize>, (usize, String)>),
    /// The time has come to write a runner's state file that could not be written.
    WriteAgain(usize),
}
