//! The job response, field by field (section 9).

use serde_json::{Value, json};

use super::artifact;
use super::job::Job;
use super::settings::CommitMode;
use super::spec::{ArtifactsSpec, CacheSpec, When};
use super::state::{Gitlab, Pipeline, Project};

/// Every failure reason that this GitLab knows.
const FAILURE_REASONS: [&str; 52] = [
    "unknown_failure",
    "script_failure",
    "api_failure",
    "stuck_or_timeout_failure",
    "runner_system_failure",
    "missing_dependency_failure",
    "runner_unsupported",
    "stale_schedule",
    "job_execution_timeout",
    "archived_failure",
    "unmet_prerequisites",
    "scheduler_failure",
    "data_integrity_failure",
    "forward_deployment_failure",
    "user_blocked",
    "project_deleted",
    "ci_quota_exceeded",
    "pipeline_loop_detected",
    "no_matching_runner",
    "trace_size_exceeded",
    "builds_disabled",
    "environment_creation_failure",
    "deployment_rejected",
    "failed_outdated_deployment_job",
    "job_execution_server_timeout",
    "stuck_pending_with_matching_runners",
    "stuck_pending_no_matching_runners",
    "no_updates_running",
    "no_updates_canceling",
    "server_timeout_running",
    "server_timeout_canceling",
    "runner_configuration_error",
    "runner_external_dependency_failure",
    "runner_interrupted",
    "protected_environment_failure",
    "insufficient_bridge_permissions",
    "downstream_bridge_project_not_found",
    "invalid_bridge_trigger",
    "upstream_bridge_project_not_found",
    "insufficient_upstream_permissions",
    "bridge_pipeline_is_child_pipeline",
    "downstream_pipeline_creation_failed",
    "secrets_provider_not_found",
    "reached_max_descendant_pipelines_depth",
    "ip_restriction_failure",
    "reached_max_pipeline_hierarchy_size",
    "reached_downstream_pipeline_trigger_rate_limit",
    "duo_workflow_not_allowed",
    "job_router_failure",
    "job_token_expired",
    "id_token_burned_project_path",
    "downstream_project_trigger_resolved_to_empty",
];

/// Those of them that came with 19.x.
const NEW_REASONS: [&str; 12] = [
    "stuck_pending_with_matching_runners",
    "stuck_pending_no_matching_runners",
    "no_updates_running",
    "no_updates_canceling",
    "server_timeout_running",
    "server_timeout_canceling",
    "runner_configuration_error",
    "runner_external_dependency_failure",
    "runner_interrupted",
    "job_router_failure",
    "job_token_expired",
    "downstream_project_trigger_resolved_to_empty",
];

/// A made-up instance; every stand-in has the same.
const INSTANCE: &str = "00000000-0000-4000-8000-000000000001";
/// GitLab's default `GIT_DEPTH` for new projects.
const DEFAULT_DEPTH: u64 = 20;
/// Deepest object that is merged field by field.
const MAX_MERGE: usize = 16;

impl Gitlab {
    /// The failure reasons that this GitLab knows.
    pub(super) fn failure_reasons(&self) -> Vec<&'static str> {
        let mode = self.settings.commit_mode;
        let known = FAILURE_REASONS.iter().copied();
        let mut list: Vec<_> = known
            .filter(|reason| !mode.is_old() || !NEW_REASONS.contains(reason))
            .collect();
        if mode == CommitMode::Acknowledged {
            list.push(super::ack::PROVISIONING_TIMEOUT);
        }
        list
    }

    /// The body of a 201. `run` is left out, as GitLab leaves it out of every job that has `script`:
    /// the stock runner reads it as a text and refuses a job where it is null.
    pub(super) fn job_json(&self, id: u64, now: u64) -> Option<Value> {
        let job = self.jobs.get(&id)?;
        let (pipeline, project) = self.place_of(job)?;
        let image = job.spec.image.as_ref().map(|image| {
            let image = image.full();
            json!({"name": image.name, "entrypoint": image.entrypoint, "ports": [], "executor_opts": {},
                   "pull_policy": null})
        });
        let waits = job.waiting.is_some() && self.settings.ack_timeout_zero;
        let timeout = if waits { 0 } else { job.timeout_secs };
        let mut response = json!({
            "id": job.id,
            "token": job.token.expose(),
            "allow_git_fetch": true,
            "job_info": self.job_info(job, project, now),
            "git_info": self.git_info(job, pipeline, project),
            "runner_info": {"timeout": timeout, "runner_session_url": null},
            "inputs": [],
            "variables": self.variables_json(job),
            "steps": steps(job),
            "hooks": hooks(job),
            "image": image,
            "services": [],
            "artifacts": job.spec.artifacts.as_ref().and_then(artifacts),
            "cache": caches(&job.spec.cache),
            "credentials": self.credentials(job.token.expose()),
            "dependencies": self.dependencies(job),
            "features": {"trace_sections": true, "failure_reasons": self.failure_reasons()},
        });
        if let Some(overlay) = &job.spec.response {
            merge(&mut response, overlay, MAX_MERGE);
        }
        Some(response)
    }

    fn job_info(&self, job: &Job, project: &Project, now: u64) -> Value {
        let pending = self.pending.len();
        let waited = job.queued_ms.map(|at| now.saturating_sub(at) / 1_000);
        json!({
            "id": job.id, "name": job.spec.name, "stage": job.spec.stage,
            "pipeline_id": job.pipeline, "project_id": project.id,
            "project_name": project.path.rsplit('/').next(),
            "project_full_path": project.path, "namespace_id": 1, "root_namespace_id": 1,
            "organization_id": 1, "instance_id": INSTANCE, "instance_uuid": INSTANCE,
            "user_id": 1, "scoped_user_id": null, "time_in_queue_seconds": waited,
            "project_jobs_running_on_instance_runners_count": "+Inf",
            "queue_size": pending, "queue_depth": 1,
        })
    }

    fn git_info(&self, job: &Job, pipeline: &Pipeline, project: &Project) -> Value {
        let commit = &pipeline.commit;
        let depth = self.depth(job, pipeline);
        json!({
            "repo_url": self.repo_url(job, project), "ref": commit.git_ref, "sha": commit.sha,
            "before_sha": "0000000000000000000000000000000000000000",
            "ref_type": if commit.tag { "tag" } else { "branch" },
            "refspecs": refspecs(pipeline, depth), "depth": depth,
            "repo_object_format": commit.format, "protected": false,
        })
    }

    /// `GIT_DEPTH` of the job, the pipeline or the project; GitLab's default otherwise.
    fn depth(&self, job: &Job, pipeline: &Pipeline) -> u64 {
        let own = job.spec.variables.get("GIT_DEPTH");
        let given = own
            .or_else(|| pipeline.spec.variables.get("GIT_DEPTH"))
            .map(|v| v.full());
        let value = given.or_else(|| self.variables.get("GIT_DEPTH").cloned());
        value
            .and_then(|variable| variable.value.parse().ok())
            .unwrap_or(DEFAULT_DEPTH)
    }

    fn dependencies(&self, job: &Job) -> Vec<Value> {
        let named = self.dependencies_of(job).into_iter();
        named.map(|other| dependency(other, job)).collect()
    }

    /// The jobs whose artifacts a job gets.
    pub(super) fn dependencies_of(&self, job: &Job) -> Vec<&Job> {
        let Some(pipeline) = self.pipelines.get(&job.pipeline) else {
            return Vec::new();
        };
        let stages = pipeline.spec.stage_order();
        let names: Vec<&str> = match &job.spec.dependencies {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => pipeline.spec.predecessors(&job.spec, &stages),
        };
        let current = self.current_jobs(job.pipeline);
        current
            .filter(|other| names.contains(&other.spec.name.as_str()))
            .collect()
    }
}

/// Puts the fields of `patch` over those of `value`; null takes a field away.
fn merge(value: &mut Value, patch: &Value, depth: usize) {
    let (Some(fields), Some(given), true) = (value.as_object_mut(), patch.as_object(), depth > 0)
    else {
        *value = patch.clone();
        return;
    };
    for (key, new) in given {
        if new.is_null() {
            fields.remove(key);
        } else {
            merge(
                fields.entry(key.clone()).or_insert(Value::Null),
                new,
                depth - 1,
            );
        }
    }
}

/// One more field of an object.
pub(super) fn put(object: &mut Value, key: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}

fn dependency(other: &Job, job: &Job) -> Value {
    let token = job.token.expose();
    let mut entry = json!({"id": other.id, "name": other.spec.name, "token": token});
    let archive = other
        .artifacts
        .iter()
        .find(|artifact| artifact.kind == "archive");
    if let Some(archive) = archive.filter(|_| !other.erased) {
        put(
            &mut entry,
            "artifacts_file",
            json!({"filename": archive.filename, "size": archive.size}),
        );
    }
    entry
}

fn refspecs(pipeline: &Pipeline, depth: u64) -> Vec<String> {
    let (id, name) = (pipeline.id, &pipeline.commit.git_ref);
    let mut list = vec![format!("+refs/pipelines/{id}:refs/pipelines/{id}")];
    if depth == 0 {
        list.push("+refs/heads/*:refs/remotes/origin/*".into());
        list.push("+refs/tags/*:refs/tags/*".into());
    } else if pipeline.commit.tag {
        list.push(format!("+refs/tags/{name}:refs/tags/{name}"));
    } else {
        list.push(format!("+refs/heads/{name}:refs/remotes/origin/{name}"));
    }
    list
}

fn steps(job: &Job) -> Vec<Value> {
    let step = |name: &str, script: &[String], when: &str, allow_failure: bool| {
        json!({"name": name, "script": script, "timeout": job.spec.timeout_secs,
               "when": when, "allow_failure": allow_failure})
    };
    // What the job's own `allow_failure` says is GitLab's alone to know.
    let mut list = vec![step("script", &job.spec.script, "on_success", false)];
    if !job.spec.after_script.is_empty() {
        list.push(step("after_script", &job.spec.after_script, "always", true));
    }
    list
}

/// The archive first, then each report; nothing at all where there is neither.
fn artifacts(spec: &ArtifactsSpec) -> Option<Value> {
    let mut list = Vec::new();
    if !spec.paths.is_empty() || spec.untracked {
        let mut archive = json!({
            "name": spec.name, "untracked": spec.untracked, "paths": spec.paths,
            "when": word(spec.when), "expire_in": spec.expire_in,
            "artifact_type": "archive", "artifact_format": "zip",
        });
        if !spec.exclude.is_empty() {
            put(&mut archive, "exclude", json!(spec.exclude));
        }
        list.push(archive);
    }
    for (kind, paths) in &spec.reports {
        let mut report = json!({
            "name": artifact::report_name(kind), "paths": paths, "when": "always",
            "artifact_type": kind, "artifact_format": artifact::format_of(kind),
        });
        if let Some(expire) = &spec.expire_in {
            put(&mut report, "expire_in", json!(expire));
        }
        list.push(report);
    }
    (!list.is_empty()).then(|| list.into())
}

/// No branch of the stand-in's projects is protected.
fn caches(specs: &[CacheSpec]) -> Vec<Value> {
    let separate = |key: &String| format!("{key}-non_protected");
    let one = |spec: &CacheSpec| {
        let fallback: Vec<String> = spec.fallback_keys.iter().map(separate).collect();
        json!({
            "key": separate(&spec.key), "untracked": spec.untracked, "unprotect": spec.unprotect,
            "paths": spec.paths, "policy": spec.policy, "when": word(spec.when),
            "fallback_keys": fallback,
        })
    };
    specs.iter().map(one).collect()
}

fn hooks(job: &Job) -> Value {
    match &job.spec.pre_get_sources_script {
        script if script.is_empty() => Value::Null,
        script => json!([{"name": "pre_get_sources_script", "script": script}]),
    }
}

fn word(when: When) -> &'static str {
    match when {
        When::OnSuccess => "on_success",
        When::OnFailure => "on_failure",
        When::Always => "always",
        When::Manual => "manual",
    }
}
