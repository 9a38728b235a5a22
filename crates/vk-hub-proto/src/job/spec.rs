//! What a job is: GitLab's response, normalised (SPEC clauses).

use serde::{Deserialize, Serialize};

use crate::Secret;
use crate::secret::expose;

/// A job of any kind; `gitlab_ci` is the only one (SPEC-01).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum JobSpec {
    /// A GitLab CI job; its fields stand flat beside `kind` (SPEC-66).
    #[serde(rename = "gitlab_ci")]
    GitlabCi(Box<CiJob>),
}

/// A GitLab CI job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CiJob {
    /// The runner's configured GitLab URL (SPEC-64).
    pub server_url: String,
    /// Contents of the runner's `tls_ca_file` (SPEC-62).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_ca_pem: Option<String>,
    /// Which job of which project.
    pub job: CiJobInfo,
    /// The job token.
    #[serde(serialize_with = "expose")]
    pub token: Secret,
    /// Seconds the job may take, enforced by the node's clock.
    pub timeout_secs: u64,
    /// What to check out.
    pub sources: Sources,
    /// The job's image; an empty name means the node's default (SPEC-81).
    pub image: Image,
    /// Services beside the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Image>,
    /// Variables in GitLab's order; of two with one name the last wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<Variable>,
    /// `script`, `after_script` and whatever else GitLab sends, in order.
    pub steps: Vec<Step>,
    /// Scripts around the checkout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// What to upload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactSpec>,
    /// Caches to restore and keep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CacheSpec>,
    /// Jobs whose artifacts to fetch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<Dependency>,
    /// Credentials for the job's images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registry_credentials: Vec<RegistryCredential>,
    /// How the trace is written.
    pub trace: TraceOptions,
}

/// Which job this is; negative numbers of GitLab's became 0 (SPEC-76).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CiJobInfo {
    /// GitLab's number of the job.
    pub id: u64,
    /// The job's name.
    pub name: String,
    /// The pipeline stage it belongs to.
    pub stage: String,
    /// The pipeline.
    pub pipeline_id: u64,
    /// The project.
    pub project_id: u64,
    /// The project's short name.
    pub project_name: String,
    /// The project's full path.
    pub project_path: String,
    /// The project's namespace.
    pub namespace_id: u64,
    /// The top of that namespace.
    pub root_namespace_id: u64,
    /// Who started it.
    pub user_id: u64,
    /// The runner, as `/runners/verify` numbered it; 0 where unknown (SPEC-80).
    pub runner_id: u64,
}

/// What to check out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// The repository's URL without credentials (SPEC-21).
    pub repo_url: String,
    /// The repository's hash.
    pub object_format: ObjectFormat,
    /// Branch or tag name.
    #[serde(rename = "ref")]
    pub ref_name: String,
    /// What `ref` names.
    pub ref_type: RefType,
    /// The commit.
    pub sha: String,
    /// The commit before the push.
    pub before_sha: String,
    /// What to fetch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refspecs: Vec<String>,
    /// History to fetch; 0 is all of it.
    pub depth: u32,
    /// Whether the ref is protected, where GitLab says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected: Option<bool>,
    /// Whether a kept tree may be fetched into.
    pub allow_fetch: bool,
}

/// A repository's hash function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectFormat {
    /// SHA-1, 40 digits.
    #[default]
    Sha1,
    /// SHA-256, 64 digits.
    Sha256,
}

/// What a ref names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefType {
    /// A branch.
    #[default]
    Branch,
    /// A tag.
    Tag,
}

/// An image, the job's or a service's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its reference; empty for the node's default.
    pub name: String,
    /// Names it is reached by, split (SPEC-04).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Replaces the image's entrypoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Replaces the image's command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Ports it offers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Variables of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<Variable>,
    /// When to pull it; empty leaves it to the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_policy: Vec<PullPolicy>,
    /// Its platform, such as `linux/amd64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// The user to run as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A port an image offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// 1 to 65535.
    pub number: u16,
    /// `http` where GitLab gave none.
    pub protocol: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// When to pull an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PullPolicy {
    /// Ask the registry each time.
    Always,
    /// Only where the node has none.
    IfNotPresent,
    /// Not at all.
    Never,
}

/// A variable of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Its name.
    pub key: String,
    /// Its value, a secret until proven public.
    #[serde(serialize_with = "expose")]
    pub value: Secret,
    /// May be shown.
    pub public: bool,
    /// The value goes to a file and the variable names it.
    pub file: bool,
    /// The value is hidden in the trace.
    pub masked: bool,
    /// The value is not expanded.
    pub raw: bool,
}

/// A step of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// `script`, `after_script`, `release` or another.
    pub name: String,
    /// Its lines.
    pub script: Vec<String>,
    /// Seconds it may take; 0 means the job's.
    pub timeout_secs: u64,
    /// After which ends it runs.
    pub when: When,
    /// Whether its failure fails the job.
    pub allow_failure: bool,
}

/// After which ends something happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// While nothing has failed.
    #[default]
    OnSuccess,
    /// Once something has failed.
    OnFailure,
    /// Either way.
    Always,
}

/// A script around the checkout (SPEC-58).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Before or after.
    pub name: HookName,
    /// Its lines.
    pub script: Vec<String>,
}

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookName {
    /// Before the checkout.
    PreGetSourcesScript,
    /// After the checkout.
    PostGetSourcesScript,
}

/// One artifact to upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactSpec {
    /// The archive's base name, `artifacts` where GitLab gave none (ART-13).
    pub name: String,
    /// Files git does not track, too.
    pub untracked: bool,
    /// Globs of what to take.
    pub paths: Vec<String>,
    /// Globs of what to leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// After which ends.
    pub when: When,
    /// `archive`, or a report's type.
    pub artifact_type: String,
    /// How it is packed.
    pub format: ArtifactFormat,
    /// How long GitLab keeps it; empty for its default.
    #[serde(default)]
    pub expire_in: String,
}

/// How an artifact is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactFormat {
    /// A zip archive.
    #[default]
    Zip,
    /// Matched files, each a gzip member.
    Gzip,
    /// One file as it is.
    Raw,
    /// A zip archive with zstd entries.
    Zipzstd,
    /// A tar archive under zstd.
    Tarzstd,
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheSpec {
    /// Its key, expanded and sanitised (SPEC-03).
    pub key: String,
    /// Keys to try after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback_keys: Vec<String>,
    /// Files git does not track, too.
    pub untracked: bool,
    /// Globs of what to keep.
    pub paths: Vec<String>,
    /// Restore, keep, or both.
    pub policy: CachePolicy,
    /// After which ends it is kept.
    pub when: When,
}

/// What a cache is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CachePolicy {
    /// Restored and kept.
    #[default]
    PullPush,
    /// Only restored.
    Pull,
    /// Only kept.
    Push,
}

/// A job whose artifacts this one takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// GitLab's number of that job.
    pub id: u64,
    /// The token that job's artifacts are fetched with (CRED-07).
    #[serde(serialize_with = "expose")]
    pub token: Secret,
    /// That job's name.
    pub name: String,
    /// Its archive; none means nothing to fetch (ART-17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts_file: Option<DependencyFile>,
}

/// A dependency's archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DependencyFile {
    /// Its name.
    pub filename: String,
    /// Its bytes.
    pub size: u64,
}

/// A credential for a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryCredential {
    /// The registry.
    pub url: String,
    /// The account.
    pub username: String,
    /// Its password.
    #[serde(serialize_with = "expose")]
    pub password: Secret,
}

/// How the trace is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceOptions {
    /// Whether sections are marked.
    pub sections: bool,
    /// Token prefixes to hide beside the known ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mask_prefixes: Vec<String>,
    /// Where the trace is cut; 0 means [`crate::limit::DEFAULT_TRACE_BYTES`].
    pub limit_bytes: u64,
}
