//! What `status` and `invariants` show.

use std::time::Duration;

use serde_json::{Value, json};

use super::lab::Lab;
use crate::admin::AdminError;
use crate::gitlab::{Gitlab, Job, NotFound};

/// Most jobs that one answer shows; the latest are.
const MAX_SHOWN: usize = 10_000;
/// Least time between two looks of one who waits for an end.
const APART: Duration = Duration::from_millis(20);

/// Answers `status`; with `wait` when the pipeline has ended.
pub(super) async fn answer(
    lab: &Lab,
    pipeline: Option<u64>,
    wait: bool,
) -> Result<Value, AdminError> {
    let mut changed = lab.on_change();
    while wait
        && !lab
            .look(|gitlab, _| ended(gitlab, pipeline))
            .map_err(missing)?
    {
        if changed.changed().await.is_err() {
            break;
        }
        // Under load much changes between two looks.
        tokio::time::sleep(APART).await;
        changed.mark_unchanged();
    }
    lab.look(|gitlab, _| shown(gitlab, pipeline))
        .map_err(missing)
}

fn missing(error: NotFound) -> AdminError {
    AdminError::new("not_found", error.to_string())
}

fn ended(gitlab: &Gitlab, only: Option<u64>) -> Result<bool, NotFound> {
    let ids: Vec<u64> = match only {
        Some(id) => vec![id],
        None => gitlab.pipelines().map(|line| line.id).collect(),
    };
    for id in ids {
        let status = gitlab.pipeline_status(id)?;
        if !matches!(
            status,
            "success" | "failed" | "canceled" | "skipped" | "manual"
        ) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn shown(gitlab: &Gitlab, only: Option<u64>) -> Result<Value, NotFound> {
    let mut pipelines = Vec::new();
    if let Some(id) = only {
        gitlab.pipeline_status(id)?;
    }
    let meant: Vec<_> = gitlab
        .pipelines()
        .filter(|line| only.is_none_or(|id| id == line.id))
        .collect();
    let mut left = MAX_SHOWN;
    let mut left_out = 0;
    for pipeline in meant.iter().rev() {
        let status = gitlab.pipeline_status(pipeline.id)?;
        let shown = pipeline.jobs.len().min(left);
        left -= shown;
        left_out += pipeline.jobs.len() - shown;
        let latest = pipeline.jobs.iter().skip(pipeline.jobs.len() - shown);
        let jobs = latest.filter_map(|id| gitlab.job(*id));
        pipelines.push(json!({
            "id": pipeline.id, "status": status, "sha": pipeline.commit.sha,
            "ref": pipeline.commit.git_ref, "jobs": jobs.map(job).collect::<Vec<_>>(),
        }));
    }
    pipelines.reverse();
    let runners: Vec<Value> = gitlab.runners().map(runner).collect();
    let first = runners.first().cloned();
    let mut value = json!({"pipelines": pipelines, "runner": first, "runners": runners});
    if let Some(fields) = value.as_object_mut().filter(|_| left_out > 0) {
        fields.insert("jobs_left_out".into(), left_out.into());
    }
    Ok(value)
}

fn runner(runner: &crate::gitlab::Runner) -> Value {
    json!({"id": runner.id, "paused": runner.paused, "tags": runner.tags,
           "requests": runner.requests, "empty_answers": runner.empty_answers,
           "managers": managers(runner)})
}

fn managers(runner: &crate::gitlab::Runner) -> Vec<Value> {
    let list = runner.managers.iter();
    list.map(|(system_id, manager)| {
        json!({"system_id": system_id, "contacted_ms": manager.contacted_ms,
               "contacts_ms": manager.contacts, "longest_silence_ms": manager.longest_silence_ms,
               "name": manager.info.name, "version": manager.info.version,
               "executor": manager.info.executor, "features": manager.info.features})
    })
    .collect()
}

/// One job, without its token.
fn job(job: &Job) -> Value {
    let artifacts = job.artifacts.iter().map(|artifact| {
        json!({"type": artifact.kind, "filename": artifact.filename, "size": artifact.size,
               "sha256": artifact.sha256, "path": artifact.path})
    });
    json!({
        "id": job.id, "name": job.spec.name, "stage": job.spec.stage, "status": job.status,
        "superseded": job.superseded, "allow_failure": job.failure_allowed,
        "failure_reason": job.failure_reason, "exit_code": job.exit_code,
        "queued_ms": job.queued_ms, "started_ms": job.started_ms,
        "finished_ms": job.finished_ms, "manager": job.manager,
        "trace_size": job.stored.size, "trace_crc32": format!("{:08x}", job.stored.crc32),
        "debug_trace": job.debug_trace, "handed_out": job.calls.handed_out,
        "runner": job.runner, "timeout": job.timeout_secs, "counts": job.counts,
        "canceled_ms": job.canceled_ms, "output_after_cancel_ms": job.output_after_cancel_ms(),
        "hand_out_lost": job.hand_out_lost, "trace_sha256": job.stored.sha256,
        "calls": job.calls.count, "told_ms": job.calls.told_ms, "artifacts": artifacts.collect::<Vec<_>>(),
    })
}

/// The broken promises.
pub(super) fn broken(gitlab: &Gitlab) -> Value {
    json!({"broken": gitlab.broken(), "left_out": gitlab.ledger.left_out})
}
