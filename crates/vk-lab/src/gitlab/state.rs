//! Everything that the stand-in holds in memory, and how it is looked up.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::job::Job;
use super::ledger::{Expectation, Ledger};
use super::runner::Runner;
use super::spec::{PipelineSpec, Variable};

/// Most jobs kept; a pipeline beyond it is refused.
pub(super) const MAX_JOBS: usize = 100_000;

/// What can be switched while it runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long a job request is held, in nanoseconds; 0 is off (GitLab's own default is 50).
    pub long_poll_ns: u64,
    /// A live trace: final updates with a checksum are answered 202 until it is stored.
    pub live_trace: bool,
    /// How long storing a live trace takes, in milliseconds.
    pub store_delay_ms: u64,
    /// Largest trace in MiB, as GitLab's plan limit counts; 0 is no limit.
    pub trace_limit_mib: u64,
    /// Largest artifact in bytes.
    pub artifact_limit: u64,
    /// Artifacts are taken at all.
    pub artifacts_enabled: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            long_poll_ns: 50,
            live_trace: false,
            store_delay_ms: 2_000,
            trace_limit_mib: 100,
            artifact_limit: 100 << 20,
            artifacts_enabled: true,
        }
    }
}

/// A project: a repository served under a path.
#[derive(Debug, Clone)]
pub struct Project {
    /// Its id.
    pub id: u64,
    /// `group/name`.
    pub path: String,
    /// Its bare repository on this host.
    pub repository: PathBuf,
    /// Where the repository is a copy of.
    pub source: PathBuf,
    /// Gone, or being deleted.
    pub deleted: bool,
}

/// What a pipeline runs on.
#[derive(Debug, Clone, Default)]
pub struct Commit {
    /// Branch or tag.
    pub git_ref: String,
    /// Whether it is a tag.
    pub tag: bool,
    /// The commit.
    pub sha: String,
    /// `sha1` or `sha256`.
    pub format: String,
    /// The project's default branch.
    pub default_branch: String,
    /// The commit's message.
    pub message: String,
    /// When it was made, as ISO 8601.
    pub timestamp: String,
    /// Who made it: `Name <address>`.
    pub author: String,
}

/// A pipeline: its jobs are those that name it.
#[derive(Debug)]
pub struct Pipeline {
    /// Its id.
    pub id: u64,
    /// Its project.
    pub project: u64,
    /// What it runs on.
    pub commit: Commit,
    /// As it was given.
    pub spec: PipelineSpec,
    /// When it was made.
    pub created_ms: u64,
}

/// Something that was asked for by id is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// No such job.
    #[error("there is no job {0}; `vk-lab status` lists them")]
    Job(u64),
    /// No such pipeline.
    #[error("there is no pipeline {0}; `vk-lab status` lists them")]
    Pipeline(u64),
    /// No runner is left.
    #[error("there is no runner any more; start the stand-in again")]
    Runner,
}

/// GitLab's mind.
#[derive(Debug)]
pub struct Gitlab {
    /// What can be switched.
    pub settings: Settings,
    /// What was broken.
    pub ledger: Ledger,
    pub(super) base_url: String,
    pub(super) variables: BTreeMap<String, Variable>,
    pub(super) runners: Vec<Runner>,
    pub(super) projects: Vec<Project>,
    pub(super) pipelines: BTreeMap<u64, Pipeline>,
    pub(super) jobs: BTreeMap<u64, Job>,
    pub(super) next_job: u64,
    pub(super) next_pipeline: u64,
    pub(super) calls: u64,
    pub(super) ticks: u64,
}

impl Gitlab {
    /// A server at `base_url` (no slash at its end) with these project variables, no project yet
    /// and one runner.
    pub fn new(base_url: &str, variables: BTreeMap<String, Variable>, tags: Vec<String>) -> Self {
        Self {
            settings: Settings::default(),
            ledger: Ledger::default(),
            base_url: base_url.trim_end_matches('/').to_owned(),
            variables,
            runners: vec![Runner::new(1, tags)],
            projects: Vec::new(),
            pipelines: BTreeMap::new(),
            jobs: BTreeMap::new(),
            next_job: 1,
            next_pipeline: 1,
            calls: 0,
            ticks: 0,
        }
    }

    /// Adds a project; the first has the id 1.
    pub fn add_project(&mut self, path: &str, repository: PathBuf, source: PathBuf) -> u64 {
        let id = self.projects.len() as u64 + 1;
        let path = path.to_owned();
        self.projects.push(Project {
            id,
            path,
            repository,
            source,
            deleted: false,
        });
        id
    }

    /// The runner, while there is one.
    pub fn runner(&self) -> Option<&Runner> {
        self.runners.first()
    }

    /// Edits the runner, which changes its queue value as GitLab does.
    ///
    /// # Errors
    ///
    /// The runner was deleted.
    pub fn edit_runner(&mut self, edit: impl FnOnce(&mut Runner)) -> Result<(), NotFound> {
        let runner = self.runners.first_mut().ok_or(NotFound::Runner)?;
        edit(runner);
        runner.queue_value = super::token::random_text();
        self.ticks += 1;
        Ok(())
    }

    pub(super) fn runner_mut(&mut self, id: u64) -> Option<&mut Runner> {
        self.runners.iter_mut().find(|runner| runner.id == id)
    }

    /// A job.
    pub fn job(&self, id: u64) -> Option<&Job> {
        self.jobs.get(&id)
    }

    /// All jobs in order of their ids.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    /// All pipelines in order of their ids.
    pub fn pipelines(&self) -> impl Iterator<Item = &Pipeline> {
        self.pipelines.values()
    }

    /// A project by its path, or the only one where no path is given.
    pub fn project(&self, path: Option<&str>) -> Option<&Project> {
        match path {
            Some(path) => self.projects.iter().find(|project| project.path == path),
            None => self.projects.first().filter(|_| self.projects.len() == 1),
        }
    }

    /// A job's project.
    pub fn project_of(&self, job: &Job) -> Option<&Project> {
        let pipeline = self.pipelines.get(&job.pipeline)?;
        self.projects
            .iter()
            .find(|project| project.id == pipeline.project)
    }

    /// Marks a project as deleted. Whether there was one.
    pub fn delete_project(&mut self, path: &str) -> bool {
        let project = self
            .projects
            .iter_mut()
            .find(|project| project.path == path);
        project.is_some_and(|project| !std::mem::replace(&mut project.deleted, true))
    }

    /// Erases a job's log and artifacts.
    ///
    /// # Errors
    ///
    /// There is no such job.
    pub fn erase(&mut self, id: u64) -> Result<(), NotFound> {
        let job = self.jobs.get_mut(&id).ok_or(NotFound::Job(id))?;
        job.erased = true;
        job.trace.clear();
        Ok(())
    }

    /// What a job's trace is to be in the end.
    ///
    /// # Errors
    ///
    /// There is no such job.
    pub fn expect(&mut self, id: u64, want: Expectation) -> Result<(), NotFound> {
        let job = self.jobs.get_mut(&id).ok_or(NotFound::Job(id))?;
        job.expectation = Some(want);
        Ok(())
    }
}
