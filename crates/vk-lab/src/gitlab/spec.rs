//! A pipeline as it is given through the admin socket: a list of jobs with what GitLab would have
//! read from a project's YAML. What is not known is refused, never ignored.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use super::variable::{Variable, VariableSpec};

/// Most jobs of one pipeline.
pub const MAX_JOBS: usize = 2_000;
/// Most script lines, variables, artifact paths or other entries of one job's list.
pub const MAX_LIST: usize = 1_000;
/// Longest name of a job, stage or variable.
pub const MAX_NAME: usize = 255;

/// What is wrong with a pipeline.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("pipeline: {what}; {hint}")]
pub struct SpecError {
    /// What was found, and where.
    pub what: String,
    /// What to do about it.
    pub hint: &'static str,
}

fn wrong(what: impl Into<String>, hint: &'static str) -> SpecError {
    SpecError {
        what: what.into(),
        hint,
    }
}

/// One pipeline to run.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineSpec {
    /// The project's path as the server names it; may be left out when there is only one.
    #[serde(default)]
    pub project: Option<String>,
    /// Branch or tag; the repository's `HEAD` when left out.
    #[serde(default, rename = "ref")]
    pub git_ref: Option<String>,
    /// What made it, as `CI_PIPELINE_SOURCE` says; `api` when left out.
    #[serde(default)]
    pub source: Option<String>,
    /// Stages in order; the order of first use when left out.
    #[serde(default)]
    pub stages: Vec<String>,
    /// Variables of every job.
    #[serde(default)]
    pub variables: BTreeMap<String, VariableSpec>,
    /// The jobs.
    pub jobs: Vec<JobSpec>,
}

/// When a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// All earlier ones succeeded (or may fail).
    #[default]
    OnSuccess,
    /// One earlier one failed.
    OnFailure,
    /// In any case.
    Always,
    /// When somebody starts it (`play`); until then the pipeline waits for it, unless it may fail.
    Manual,
}

/// A job's image: its name, or a table with its properties.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(untagged)]
pub enum ImageSpec {
    /// Only its name.
    Name(String),
    /// Name and entry point.
    Full(Image),
}

/// An image with its properties.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Its name.
    pub name: String,
    /// What replaces its entry point; an empty list means none.
    #[serde(default)]
    pub entrypoint: Option<Vec<String>>,
}

impl ImageSpec {
    /// The full form of either spelling.
    pub fn full(&self) -> Image {
        match self {
            Self::Name(name) => Image {
                name: name.clone(),
                entrypoint: None,
            },
            Self::Full(image) => image.clone(),
        }
    }
}

/// Which failures of a job are allowed.
#[derive(Debug, Clone, Deserialize, Serialize)]
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

impl Default for AllowFailure {
    fn default() -> Self {
        Self::All(false)
    }
}

/// Automatic retries.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RetrySpec {
    /// 0 to 2.
    pub max: u8,
    /// The reasons that are retried; any when empty.
    #[serde(default)]
    pub when: Vec<String>,
    /// The exit codes that are retried; any when empty.
    #[serde(default)]
    pub exit_codes: Vec<i64>,
}

/// What a job leaves behind.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactsSpec {
    /// Name of the archive.
    #[serde(default)]
    pub name: Option<String>,
    /// Paths of the archive.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Paths left out.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Untracked files too.
    #[serde(default)]
    pub untracked: bool,
    /// `on_success` (default), `on_failure` or `always`.
    #[serde(default)]
    pub when: When,
    /// How long GitLab is to keep them, in its own words.
    #[serde(default)]
    pub expire_in: Option<String>,
    /// Reports: type to paths.
    #[serde(default)]
    pub reports: BTreeMap<String, Vec<String>>,
}

/// What a job keeps for later ones, under a key.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// Its key, to which GitLab adds the protection of the branch.
    #[serde(default = "default_key")]
    pub key: String,
    /// Its paths.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Untracked files too.
    #[serde(default)]
    pub untracked: bool,
    /// Shared between protected and other branches.
    #[serde(default)]
    pub unprotect: bool,
    /// `pull-push`, `pull`, `push`, or a variable that holds one of them.
    #[serde(default = "default_policy")]
    pub policy: String,
    /// `on_success` (default), `on_failure` or `always`.
    #[serde(default)]
    pub when: When,
    /// Keys to look for where there is nothing under its own.
    #[serde(default)]
    pub fallback_keys: Vec<String>,
}

/// One job.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Its name, unique in the pipeline.
    pub name: String,
    /// Its stage (`test` as in GitLab when left out).
    #[serde(default = "default_stage")]
    pub stage: String,
    /// Its image.
    #[serde(default)]
    pub image: Option<ImageSpec>,
    /// `before_script` and `script` as one list, as GitLab hands them out.
    pub script: Vec<String>,
    /// `after_script`.
    #[serde(default)]
    pub after_script: Vec<String>,
    /// Variables; they win over the pipeline's and the project's.
    #[serde(default)]
    pub variables: BTreeMap<String, VariableSpec>,
    /// Artifacts.
    #[serde(default)]
    pub artifacts: Option<ArtifactsSpec>,
    /// Caches.
    #[serde(default)]
    pub cache: Vec<CacheSpec>,
    /// The hook before the sources.
    #[serde(default)]
    pub pre_get_sources_script: Vec<String>,
    /// Jobs that must end first; all of earlier stages when left out.
    #[serde(default)]
    pub needs: Option<Vec<String>>,
    /// Jobs whose artifacts it gets; those it needs when left out.
    #[serde(default)]
    pub dependencies: Option<Vec<String>>,
    /// Timeout in seconds; 3600 when left out.
    #[serde(default = "default_timeout", rename = "timeout")]
    pub timeout_secs: u64,
    /// Whether it may fail.
    #[serde(default)]
    pub allow_failure: AllowFailure,
    /// When it runs.
    #[serde(default)]
    pub when: When,
    /// Tags that a runner must have, all of them.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Automatic retries.
    #[serde(default)]
    pub retry: RetrySpec,
    /// Fields of the job response that take the place of what the stand-in writes (a JSON merge
    /// patch): for fields that it does not make itself, and for responses that no GitLab makes.
    #[serde(default)]
    pub response: Option<serde_json::Value>,
}

fn default_stage() -> String {
    "test".into()
}

fn default_key() -> String {
    "default".into()
}

fn default_policy() -> String {
    "pull-push".into()
}

fn default_timeout() -> u64 {
    3_600
}

impl PipelineSpec {
    /// Stages in their order.
    pub fn stage_order(&self) -> Vec<String> {
        if !self.stages.is_empty() {
            return self.stages.clone();
        }
        let mut order: Vec<String> = Vec::new();
        for job in &self.jobs {
            if !order.contains(&job.stage) {
                order.push(job.stage.clone());
            }
        }
        order
    }

    /// Checks everything that GitLab's linter would: names, references, loops, bounds.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.jobs.is_empty() {
            return Err(wrong("it has no job", "give at least one"));
        }
        if self.jobs.len() > MAX_JOBS {
            return Err(wrong(
                format!("{} jobs are more than {MAX_JOBS}", self.jobs.len()),
                "split the pipeline",
            ));
        }
        let names: BTreeSet<&str> = self.jobs.iter().map(|job| job.name.as_str()).collect();
        if names.len() != self.jobs.len() {
            return Err(wrong("two jobs have the same name", "rename one"));
        }
        let stages = self.stage_order();
        for job in &self.jobs {
            job.check(&names, &stages)?;
        }
        self.check_loops()
    }

    /// A job's own order: it may only need jobs that can end before it.
    fn check_loops(&self) -> Result<(), SpecError> {
        let mut done: BTreeSet<&str> = BTreeSet::new();
        let stages = self.stage_order();
        loop {
            let before = done.len();
            for job in &self.jobs {
                if self
                    .predecessors(job, &stages)
                    .iter()
                    .all(|name| done.contains(name))
                {
                    done.insert(&job.name);
                }
            }
            if done.len() == self.jobs.len() {
                return Ok(());
            }
            if done.len() == before {
                return Err(wrong(
                    "jobs need each other in a circle",
                    "remove one of the needs",
                ));
            }
        }
    }

    /// The jobs that must end before `job` can start.
    pub fn predecessors<'a>(&'a self, job: &'a JobSpec, stages: &[String]) -> Vec<&'a str> {
        if let Some(needs) = &job.needs {
            return needs.iter().map(String::as_str).collect();
        }
        let rank = |stage: &str| stages.iter().position(|known| known == stage);
        let own = rank(&job.stage);
        let earlier = self.jobs.iter().filter(|other| rank(&other.stage) < own);
        earlier.map(|other| other.name.as_str()).collect()
    }
}

impl JobSpec {
    fn check(&self, names: &BTreeSet<&str>, stages: &[String]) -> Result<(), SpecError> {
        let at = |what: &str| format!("job {:?}: {what}", self.name);
        if self.name.is_empty() || self.name.len() > MAX_NAME {
            return Err(wrong(
                at("its name is empty or too long"),
                "use 1 to 255 bytes",
            ));
        }
        if !stages.contains(&self.stage) {
            return Err(wrong(
                at("its stage is not among the stages"),
                "add it to `stages`",
            ));
        }
        if self.script.is_empty() {
            return Err(wrong(at("it has no script"), "give at least one line"));
        }
        let lists = [
            self.script.len(),
            self.after_script.len(),
            self.variables.len(),
            self.cache.len(),
            self.pre_get_sources_script.len(),
        ];
        if lists.iter().any(|len| *len > MAX_LIST) || self.tags.len() > MAX_LIST {
            return Err(wrong(
                at("a list is too long"),
                "at most 1000 entries a list",
            ));
        }
        if self.timeout_secs == 0 || self.timeout_secs > 31 * 86_400 {
            return Err(wrong(
                at("its timeout is 0 or above a month"),
                "give it in seconds",
            ));
        }
        if self.retry.max > 2 {
            return Err(wrong(at("retry.max is above 2"), "GitLab allows 0 to 2"));
        }
        let named = self.needs.iter().chain(&self.dependencies).flatten();
        for name in named {
            if !names.contains(name.as_str()) || *name == self.name {
                return Err(wrong(
                    at(&format!("it names {name:?}")),
                    "name another job of it",
                ));
            }
        }
        let artifacts = self.artifacts.as_ref();
        if artifacts.is_some_and(|artifacts| artifacts.when == When::Manual) {
            let hint = "use on_success, on_failure or always";
            return Err(wrong(at("artifacts.when is manual"), hint));
        }
        if self.cache.iter().any(|cache| cache.when == When::Manual) {
            let hint = "use on_success, on_failure or always";
            return Err(wrong(at("cache.when is manual"), hint));
        }
        self.check_reports()
    }

    fn check_reports(&self) -> Result<(), SpecError> {
        let reports = self
            .artifacts
            .iter()
            .flat_map(|artifacts| artifacts.reports.keys());
        for kind in reports {
            if super::artifact::format_of(kind).is_none() {
                let what = format!("job {:?}: report type {kind:?} is unknown", self.name);
                return Err(wrong(what, "use one of GitLab's report types"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> PipelineSpec {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let text = r#"{"jobs":[{"name":"a","script":["x"],"services":["db"]}]}"#;
        assert!(serde_json::from_str::<PipelineSpec>(text).is_err());
    }

    #[test]
    fn each_fault_of_a_pipeline_is_named() {
        let rows = [
            (r#"{"jobs":[]}"#, "no job"),
            (r#"{"jobs":[{"name":"a","script":[]}]}"#, "no script"),
            (
                r#"{"jobs":[{"name":"a","script":["x"],"needs":["b"]}]}"#,
                "names \"b\"",
            ),
            (
                r#"{"jobs":[{"name":"a","script":["x"],"timeout":0}]}"#,
                "timeout",
            ),
            (
                r#"{"stages":["b"],"jobs":[{"name":"a","script":["x"]}]}"#,
                "stage",
            ),
            (
                r#"{"jobs":[{"name":"a","script":["x"]},{"name":"a","script":["x"]}]}"#,
                "same name",
            ),
            (
                r#"{"jobs":[{"name":"a","script":["x"],"needs":["b"]},
                    {"name":"b","script":["x"],"needs":["a"]}]}"#,
                "circle",
            ),
            (
                r#"{"jobs":[{"name":"a","script":["x"],"artifacts":{"reports":{"nope":[]}}}]}"#,
                "report type",
            ),
        ];
        for (text, part) in rows {
            let error = parse(text).check().unwrap_err().to_string();
            assert!(error.contains(part), "{error} does not say {part}");
        }
    }

    #[test]
    fn a_job_waits_for_earlier_stages_or_for_what_it_needs() {
        let spec = parse(
            r#"{"stages":["build","test"],"jobs":[{"name":"b","stage":"build","script":["x"]},
                {"name":"t","script":["x"]},{"name":"u","script":["x"],"needs":[]}]}"#,
        );
        let stages = spec.stage_order();
        let of = |i: usize| spec.predecessors(&spec.jobs[i], &stages);
        assert_eq!((of(0), of(1), of(2)), (vec![], vec!["b"], vec![]));
    }
}
