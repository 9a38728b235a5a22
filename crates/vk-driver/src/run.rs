//! One job, from its begin to its result.

use tokio::sync::mpsc;
use vk_hub_proto::job::JobResult;

use crate::context::{Control, JobContext, StateSender};
use crate::error::DriverError;

/// Runs a job to its end.
///
/// The result is written to `result.json` after `output` was synced, both durably, and then given
/// back and told as [`crate::JobState::result`]. A job that waits for [`Control::Grant`] takes
/// neither memory nor disk. When `control` is closed the job simply goes on. A directory in which
/// an earlier life left stage marks but no result gets the result `interrupted` (FAIL-34); one with
/// a result gives that again: a job never runs twice.
///
/// Everything the job started dies with this process, however that ends.
///
/// # Errors
/// Only where no result can be recorded: see [`DriverError`].
pub async fn run(
    context: JobContext,
    control: mpsc::Receiver<Control>,
    state: StateSender,
) -> Result<JobResult, DriverError> {
    let _ = (context, control, state);
    Err(DriverError::Marks {
        path: std::path::PathBuf::new(),
        why: "this build cannot run jobs yet".to_owned(),
    })
}
