//! What `status` and `invariants` show.

use serde_json::{Value, json};

use super::lab::Lab;
use crate::admin::AdminError;
use crate::gitlab::{Gitlab, Job, NotFound};

/// Answers `status`; with `wait` when the pipeline has ended.
pub(super) async fn answer(
    lab: &Lab,
    pipeline: Option<u64>,
    wait: bool,
) -> Result<Value, AdminError> {
    let mut changed = lab.on_change();
    loop {
        let (value, ended) = lab
            .look(|gitlab, _| shown(gitlab, pipeline))
            .map_err(|error| AdminError::new("not_found", error.to_string()))?;
        if ended || !wait || changed.changed().await.is_err() {
            return Ok(value);
        }
    }
}

fn shown(gitlab: &Gitlab, only: Option<u64>) -> Result<(Value, bool), NotFound> {
    let mut pipelines = Vec::new();
    let mut ended = true;
    if let Some(id) = only {
        gitlab.pipeline_status(id)?;
    }
    for pipeline in gitlab
        .pipelines()
        .filter(|line| only.is_none_or(|id| id == line.id))
    {
        let status = gitlab.pipeline_status(pipeline.id)?;
        ended &= matches!(
            status,
            "success" | "failed" | "canceled" | "skipped" | "manual"
        );
        let jobs = gitlab.jobs().filter(|job| job.pipeline == pipeline.id);
        pipelines.push(json!({
            "id": pipeline.id, "status": status, "sha": pipeline.commit.sha,
            "ref": pipeline.commit.git_ref, "jobs": jobs.map(job).collect::<Vec<_>>(),
        }));
    }
    let runner = gitlab.runner().map(|runner| {
        json!({"id": runner.id, "paused": runner.paused, "tags": runner.tags,
               "requests": runner.requests, "empty_answers": runner.empty_answers,
               "managers": managers(runner)})
    });
    Ok((json!({"pipelines": pipelines, "runner": runner}), ended))
}

fn managers(runner: &crate::gitlab::Runner) -> Vec<Value> {
    let list = runner.managers.iter();
    list.map(|(system_id, manager)| {
        json!({"system_id": system_id, "contacted_ms": manager.contacted_ms,
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
        "trace_size": job.trace.len(), "trace_crc32": format!("{:08x}", crc32fast::hash(&job.trace)),
        "debug_trace": job.debug_trace, "handed_out": job.calls.handed_out,
        "calls": job.calls.count, "told_ms": job.calls.told_ms, "artifacts": artifacts.collect::<Vec<_>>(),
    })
}

/// The broken promises.
pub(super) fn broken(gitlab: &Gitlab) -> Value {
    json!({"broken": gitlab.broken(), "left_out": gitlab.ledger.left_out})
}
