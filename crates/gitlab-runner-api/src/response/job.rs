//! The job response's fields.

use serde::Deserialize;
use serde_json::Value;
use vk_hub_proto::Secret;

use super::image::Image;
use super::lenient::zero;

/// What a 201 to a job request holds.
#[derive(Clone, Debug, Default, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct JobResponse {
    #[serde(default, deserialize_with = "zero")]
    pub id: i64,
    #[serde(default, deserialize_with = "zero")]
    pub token: Secret,
    #[serde(default, deserialize_with = "zero")]
    pub allow_git_fetch: bool,
    #[serde(default, deserialize_with = "zero")]
    pub job_info: JobInfo,
    #[serde(default, deserialize_with = "zero")]
    pub git_info: GitInfo,
    #[serde(default, deserialize_with = "zero")]
    pub runner_info: RunnerInfo,
    #[serde(default, deserialize_with = "zero")]
    pub variables: Vec<Variable>,
    #[serde(default, deserialize_with = "zero")]
    pub steps: Vec<Step>,
    #[serde(default, deserialize_with = "zero")]
    pub image: Image,
    #[serde(default, deserialize_with = "zero")]
    pub services: Vec<Image>,
    #[serde(default, deserialize_with = "zero")]
    pub artifacts: Vec<Artifact>,
    #[serde(default, deserialize_with = "zero")]
    pub cache: Vec<Cache>,
    #[serde(default, deserialize_with = "zero")]
    pub credentials: Vec<Credentials>,
    #[serde(default, deserialize_with = "zero")]
    pub dependencies: Vec<Dependency>,
    #[serde(default, deserialize_with = "zero")]
    pub features: ResponseFeatures,
    /// Not advertised; present and not empty, the job is refused (SPEC-56, SPEC-68).
    #[serde(default)]
    secrets: Value,
    #[serde(default, deserialize_with = "zero")]
    pub hooks: Vec<Hook>,
    /// Not advertised; present and not empty, the job is refused (SPEC-59, SPEC-68).
    #[serde(default)]
    run: Value,
    #[serde(default, deserialize_with = "zero")]
    pub policy_options: PolicyOptions,
}

impl JobResponse {
    /// Whether the job wants secrets fetched.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        match &self.secrets {
            Value::Null => false,
            Value::Object(secrets) => !secrets.is_empty(),
            _ => true,
        }
    }

    /// Whether the job has `run:` steps.
    #[must_use]
    pub fn has_run(&self) -> bool {
        match &self.run {
            Value::Null => false,
            Value::String(text) => !matches!(text.trim(), "" | "[]" | "null"),
            Value::Array(steps) => !steps.is_empty(),
            _ => true,
        }
    }
}

/// Which job of which project.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct JobInfo {
    #[serde(default, deserialize_with = "zero")]
    pub name: String,
    #[serde(default, deserialize_with = "zero")]
    pub stage: String,
    #[serde(default, deserialize_with = "zero")]
    pub pipeline_id: i64,
    #[serde(default, deserialize_with = "zero")]
    pub project_id: i64,
    #[serde(default, deserialize_with = "zero")]
    pub project_name: String,
    #[serde(default, deserialize_with = "zero")]
    pub project_full_path: String,
    #[serde(default, deserialize_with = "zero")]
    pub namespace_id: i64,
    #[serde(default, deserialize_with = "zero")]
    pub root_namespace_id: i64,
    #[serde(default, deserialize_with = "zero")]
    pub user_id: i64,
    #[serde(default, deserialize_with = "zero")]
    pub time_in_queue_seconds: f64,
    /// A number in text, `+Inf` for many (SPEC-78).
    #[serde(default, deserialize_with = "zero")]
    pub project_jobs_running_on_instance_runners_count: String,
    #[serde(default, deserialize_with = "zero")]
    pub queue_size: i64,
    #[serde(default, deserialize_with = "zero")]
    pub queue_depth: i64,
}

/// What to check out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct GitInfo {
    /// May hold credentials.
    #[serde(default, deserialize_with = "zero")]
    pub repo_url: Secret,
    #[serde(default, deserialize_with = "zero")]
    pub repo_object_format: String,
    #[serde(default, rename = "ref", deserialize_with = "zero")]
    pub ref_name: String,
    #[serde(default, deserialize_with = "zero")]
    pub sha: String,
    #[serde(default, deserialize_with = "zero")]
    pub before_sha: String,
    #[serde(default, deserialize_with = "zero")]
    pub ref_type: String,
    #[serde(default, deserialize_with = "zero")]
    pub refspecs: Vec<String>,
    #[serde(default, deserialize_with = "zero")]
    pub depth: i64,
    #[serde(default)]
    pub protected: Option<bool>,
}

/// What concerns the runner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct RunnerInfo {
    /// Seconds; 0 or less means unknown (FAIL-38).
    #[serde(default, deserialize_with = "zero")]
    pub timeout: i64,
    #[serde(default, deserialize_with = "zero")]
    pub uuid: String,
}

/// A variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct Variable {
    #[serde(default, deserialize_with = "zero")]
    pub key: String,
    #[serde(default, deserialize_with = "zero")]
    pub value: Secret,
    #[serde(default, deserialize_with = "zero")]
    pub public: bool,
    #[serde(default, deserialize_with = "zero")]
    pub file: bool,
    #[serde(default, deserialize_with = "zero")]
    pub masked: bool,
    #[serde(default, deserialize_with = "zero")]
    pub raw: bool,
}

/// A step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct Step {
    #[serde(default, deserialize_with = "zero")]
    pub name: String,
    #[serde(default, deserialize_with = "zero")]
    pub script: Vec<String>,
    #[serde(default, deserialize_with = "zero")]
    pub timeout: i64,
    #[serde(default, deserialize_with = "zero")]
    pub when: String,
    #[serde(default, deserialize_with = "zero")]
    pub allow_failure: bool,
}

/// A script around the checkout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct Hook {
    #[serde(default, deserialize_with = "zero")]
    pub name: String,
    #[serde(default, deserialize_with = "zero")]
    pub script: Vec<String>,
}

/// An artifact to upload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct Artifact {
    #[serde(default, deserialize_with = "zero")]
    pub name: String,
    #[serde(default, deserialize_with = "zero")]
    pub untracked: bool,
    #[serde(default, deserialize_with = "zero")]
    pub paths: Vec<String>,
    #[serde(default, deserialize_with = "zero")]
    pub exclude: Vec<String>,
    #[serde(default, deserialize_with = "zero")]
    pub when: String,
    #[serde(default, deserialize_with = "zero")]
    pub artifact_type: String,
    #[serde(default, deserialize_with = "zero")]
    pub artifact_format: String,
    #[serde(default, deserialize_with = "zero")]
    pub expire_in: String,
}

/// A cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct Cache {
    #[serde(default, deserialize_with = "zero")]
    pub key: String,
    #[serde(default, deserialize_with = "zero")]
    pub untracked: bool,
    #[serde(default, deserialize_with = "zero")]
    pub policy: String,
    #[serde(default, deserialize_with = "zero")]
    pub paths: Vec<String>,
    #[serde(default, deserialize_with = "zero")]
    pub when: String,
    #[serde(default, deserialize_with = "zero")]
    pub fallback_keys: Vec<String>,
}

/// A credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct Credentials {
    #[serde(default, rename = "type", deserialize_with = "zero")]
    pub kind: String,
    #[serde(default, deserialize_with = "zero")]
    pub url: String,
    #[serde(default, deserialize_with = "zero")]
    pub username: String,
    #[serde(default, deserialize_with = "zero")]
    pub password: Secret,
}

/// A job whose artifacts are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct Dependency {
    #[serde(default, deserialize_with = "zero")]
    pub id: i64,
    #[serde(default, deserialize_with = "zero")]
    pub token: Secret,
    #[serde(default, deserialize_with = "zero")]
    pub name: String,
    #[serde(default, deserialize_with = "zero")]
    pub artifacts_file: ArtifactsFile,
}

/// A dependency's archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct ArtifactsFile {
    #[serde(default, deserialize_with = "zero")]
    pub filename: String,
    #[serde(default, deserialize_with = "zero")]
    pub size: i64,
}

/// What this GitLab can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct ResponseFeatures {
    #[serde(default, deserialize_with = "zero")]
    pub trace_sections: bool,
    #[serde(default, deserialize_with = "zero")]
    pub token_mask_prefixes: Vec<String>,
    #[serde(default, deserialize_with = "zero")]
    pub failure_reasons: Vec<String>,
}

/// A policy that brought the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct PolicyOptions {
    #[serde(default, deserialize_with = "zero")]
    pub execution_policy_job: bool,
    #[serde(default, deserialize_with = "zero")]
    pub policy_name: String,
    #[serde(default)]
    pub policy_variables_override_allowed: Option<bool>,
    #[serde(default, deserialize_with = "zero")]
    pub policy_variables_override_exceptions: Vec<String>,
}
