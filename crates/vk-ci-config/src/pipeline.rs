//! A pipeline as it is run: plain data, everything resolved.

use std::collections::BTreeMap;

use serde::Serialize;

/// The jobs of one pipeline, their rules decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pipeline {
    /// Stages in order, `.pre` and `.post` included; those without a job are left out.
    pub stages: Vec<String>,
    /// Global variables and those of the `workflow:rules` entry that matched. They stand in each
    /// job's variables too: a caller that takes those needs none of these.
    pub variables: BTreeMap<String, Variable>,
    /// The jobs, in the order of the file; never empty.
    pub jobs: Vec<Job>,
}

/// A variable of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Variable {
    /// Its value; references in it are not expanded.
    pub value: String,
    /// `expand: false`: references in it never are.
    pub raw: bool,
}

/// One job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Its name, unique in the pipeline.
    pub name: String,
    /// Its stage; one of the pipeline's.
    pub stage: String,
    /// Its image; the runner's default where there is none.
    pub image: Option<Image>,
    /// `before_script` and `script` as one list, nested lists flattened.
    pub script: Vec<String>,
    /// `after_script`.
    pub after_script: Vec<String>,
    /// All variables of the file that the job gets: global, `workflow:rules`, its own, its rule's.
    /// Variables of the project win over these.
    pub variables: BTreeMap<String, Variable>,
    /// What it leaves behind.
    pub artifacts: Option<Artifacts>,
    /// What it keeps for later jobs.
    pub caches: Vec<Cache>,
    /// `hooks:pre_get_sources_script`.
    pub pre_get_sources: Vec<String>,
    /// Jobs of this pipeline that must end first; all of earlier stages where there is no list.
    pub needs: Option<Vec<String>>,
    /// Jobs of this pipeline whose artifacts it gets; all of earlier stages where there is no list.
    /// `needs` with `artifacts: false` is already taken into account.
    pub dependencies: Option<Vec<String>>,
    /// Its timeout in seconds; the project's where there is none.
    pub timeout_secs: Option<u64>,
    /// Which failures are allowed.
    pub allow_failure: AllowFailure,
    /// When it runs.
    pub when: When,
    /// Tags that a runner must have, all of them.
    pub tags: Vec<String>,
    /// Automatic retries.
    pub retry: Retry,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Image {
    /// Its name, variables not expanded.
    pub name: String,
    /// What replaces its entry point; an empty list means none.
    pub entrypoint: Option<Vec<String>>,
}

/// When a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// All earlier ones succeeded (or may fail).
    #[default]
    OnSuccess,
    /// One earlier one failed.
    OnFailure,
    /// In any case.
    Always,
    /// When somebody starts it. Where `allow_failure` is not `All(true)`, the pipeline waits.
    Manual,
}

/// Which failures of a job are allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum AllowFailure {
    /// All or none.
    All(bool),
    /// These exit codes.
    ExitCodes {
        /// The codes.
        exit_codes: Vec<i64>,
    },
}

/// When artifacts or a cache are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactsWhen {
    /// When the job succeeded.
    #[default]
    OnSuccess,
    /// When it failed.
    OnFailure,
    /// In any case.
    Always,
}

impl ArtifactsWhen {
    /// By its word.
    pub(crate) fn named(word: &str) -> Option<Self> {
        match word {
            "on_success" => Some(Self::OnSuccess),
            "on_failure" => Some(Self::OnFailure),
            "always" => Some(Self::Always),
            _ => None,
        }
    }
}

/// What a job keeps for later ones, under a key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Cache {
    /// Its key, variables not expanded; `default` where the file has none.
    pub key: String,
    /// Its paths, as glob patterns.
    pub paths: Vec<String>,
    /// Untracked files too.
    pub untracked: bool,
    /// Shared between protected and other branches.
    pub unprotect: bool,
    /// `pull-push`, `pull`, `push`, or a variable that holds one of them.
    pub policy: String,
    /// When it is kept.
    pub when: ArtifactsWhen,
    /// Keys to look for where there is nothing under its own, variables not expanded.
    pub fallback_keys: Vec<String>,
}

/// What a job leaves behind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Artifacts {
    /// Name of the archive, variables not expanded.
    pub name: Option<String>,
    /// Paths of the archive, as glob patterns.
    pub paths: Vec<String>,
    /// Paths left out.
    pub exclude: Vec<String>,
    /// Untracked files too.
    pub untracked: bool,
    /// When they are kept.
    pub when: ArtifactsWhen,
    /// How long GitLab is to keep them, in the file's words.
    pub expire_in: Option<String>,
    /// Reports: type to paths.
    pub reports: BTreeMap<String, Vec<String>>,
}

/// Automatic retries.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Retry {
    /// 0 to 2.
    pub max: u8,
    /// The reasons that are retried; any when this and `exit_codes` are empty.
    pub when: Vec<String>,
    /// The exit codes that are retried.
    pub exit_codes: Vec<i64>,
}
