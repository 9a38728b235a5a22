//! prepare_script: where the job runs.

use vk_stage_core::StageEnd;

use super::{prepare, system};
use crate::job::Job;

/// Says so; that the agent answers is what makes it true.
pub(super) async fn run(job: &Job) -> Result<(), StageEnd> {
    job.guest()?.ping().await.map_err(system)?;
    let (name, host) = (prepare::hostname(job), &job.context.node.host);
    job.output
        .say(&format!("Running on {name} via {host}...\n"));
    Ok(())
}
