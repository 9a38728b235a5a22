//! What operators see of a node.

use std::fmt;
use std::io::Write;

use vk_node::admin::{self, CallError};
use vk_node::state_dir::StateDir;
use vk_node::view::{JobState, JobView, read_past};

/// Writes a line to standard output.
pub(super) fn line(text: fmt::Arguments<'_>) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// `vk node status`.
pub(super) async fn status(state: &StateDir, json: bool) -> anyhow::Result<()> {
    let status = admin::status(state).await?;
    if json {
        return line(format_args!("{}", serde_json::to_string_pretty(&status)?));
    }
    let connected = match status.connected {
        true => "connected",
        false => "not connected",
    };
    let admission = status.admission;
    let budget = admission
        .budget_mib
        .map_or_else(|| "unbounded".to_owned(), |mib| format!("{mib} MiB"));
    line(format_args!("node     {}", status.node_id))?;
    line(format_args!("version  {}", status.version))?;
    line(format_args!("hub      {} ({connected})", status.hub))?;
    line(format_args!("state    {}", word(&status.state)?))?;
    line(format_args!(
        "memory   {} MiB granted of {budget}",
        admission.committed_mib
    ))?;
    line(format_args!(
        "jobs     {} here, {} entries granted, {} waiting",
        status.jobs, admission.running, admission.waiting
    ))?;
    if let Some(why) = &status.store_failed {
        line(format_args!("journal  cannot be written: {why}"))?;
    }
    Ok(())
}

/// `vk node jobs`. Where no daemon runs: the jobs of the past.
pub(super) async fn jobs(state: &StateDir, json: bool) -> anyhow::Result<()> {
    let jobs = match admin::jobs(state).await {
        Ok(jobs) => jobs,
        Err(CallError::NotRunning { state_dir }) => {
            tracing::warn!("no vk node runs on {state_dir}: these are jobs of the past");
            read_past(&state.history()).into()
        }
        Err(error) => return Err(error.into()),
    };
    if json {
        return line(format_args!("{}", serde_json::to_string_pretty(&jobs)?));
    }
    line(format_args!(
        "{:<32}  {:>10}  {:<9}  {:<22}  {:>8}  {:>9}  {:>8}",
        "JOB", "GITLAB", "STATE", "STAGE OR END", "BOOT", "PEAK", "OUTPUT"
    ))?;
    jobs.iter().try_for_each(row)
}

fn row(job: &JobView) -> anyhow::Result<()> {
    let state = match job.state {
        JobState::Accepted => "accepted",
        JobState::Running => "running",
        JobState::Finished => "finished",
    };
    let progress = &job.progress;
    let end = match &progress.result {
        Some(result) => match (result.failure, result.exit_code) {
            (None, _) => "success".to_owned(),
            (Some(failure), Some(code)) => format!("{}, exit code {code}", word(&failure)?),
            (Some(failure), None) => word(&failure)?,
        },
        None => progress.stage.clone().unwrap_or_default(),
    };
    let usage = progress.result.as_ref().and_then(|result| result.usage);
    let peak = usage.and_then(|usage| usage.peak_mem_bytes);
    line(format_args!(
        "{:<32}  {:>10}  {state:<9}  {end:<22}  {:>8}  {:>9}  {:>8}",
        job.job.to_string(),
        job.gitlab_id,
        dash(progress.boot_ms.map(|ms| format!("{ms} ms"))),
        dash(peak.map(|bytes| format!("{} MiB", bytes >> 20))),
        progress.output_len,
    ))
}

fn dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// An enum's word on the wire.
fn word(value: &impl serde::Serialize) -> anyhow::Result<String> {
    let value = serde_json::to_value(value)?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}
