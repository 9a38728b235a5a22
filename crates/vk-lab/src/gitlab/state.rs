//! Everything that the stand-in holds in memory, and how it is looked up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use super::job::Job;
use super::ledger::Ledger;
use super::runner::Runner;
use super::settings::Settings;
use super::spec::{PipelineSpec, Variable};

/// Most jobs kept; a pipeline beyond it is refused.
pub(super) const MAX_JOBS: usize = 250_000;
/// Most runners.
const MAX_RUNNERS: usize = 10_000;

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
    /// Paths of other projects whose job tokens may read it (submodules).
    pub readers: BTreeSet<String>,
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

/// A pipeline.
#[derive(Debug, Clone)]
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
    /// Its jobs, retried ones among them, in the order in which they were made.
    pub jobs: Vec<u64>,
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
#[derive(Debug, Clone)]
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
    /// The jobs in the queue.
    pub(super) pending: BTreeSet<u64>,
    /// Live job tokens, each with its job.
    pub(super) tokens: BTreeMap<super::token::Secret, u64>,
    pub(super) next_job: u64,
    pub(super) next_pipeline: u64,
    pub(super) calls: u64,
    pub(super) ticks: u64,
    pub(super) next_runner: u64,
    pub(super) swept_ms: u64,
    pub(super) hidden: BTreeMap<u64, super::hidden::Hidden>,
    pub(super) images: BTreeMap<String, PathBuf>,
    pub(super) pulls: VecDeque<super::images::Pull>,
    /// What a rollback goes back to.
    pub(super) snapshot: Option<Box<Gitlab>>,
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
            pending: BTreeSet::new(),
            tokens: BTreeMap::new(),
            next_job: 1,
            next_pipeline: 1,
            calls: 0,
            ticks: 0,
            next_runner: 2,
            swept_ms: 0,
            hidden: BTreeMap::new(),
            images: BTreeMap::new(),
            pulls: VecDeque::new(),
            snapshot: None,
        }
    }

    /// The server's address as its clients see it, without a slash at its end.
    pub fn base_url(&self) -> &str {
        &self.base_url
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
            readers: BTreeSet::new(),
        });
        id
    }

    /// The first runner, while there is one.
    pub fn runner(&self) -> Option<&Runner> {
        self.runners.first()
    }

    /// All runners in order of their ids.
    pub fn runners(&self) -> impl Iterator<Item = &Runner> {
        self.runners.iter()
    }

    /// Adds a runner of its own token; nothing where there are too many.
    pub fn add_runner(&mut self, tags: Vec<String>) -> Option<&Runner> {
        if self.runners.len() >= MAX_RUNNERS {
            return None;
        }
        self.runners.push(Runner::new(self.next_runner, tags));
        self.next_runner += 1;
        self.runners.last()
    }

    /// Edits the first runner, which changes its queue value as GitLab does.
    ///
    /// # Errors
    ///
    /// The runner was deleted.
    pub fn edit_runner(&mut self, edit: impl FnOnce(&mut Runner)) -> Result<(), NotFound> {
        let first = self.runners.first().ok_or(NotFound::Runner)?.id;
        self.edit_runner_of(first, edit)
    }

    /// Edits a runner.
    ///
    /// # Errors
    ///
    /// There is no such runner.
    pub fn edit_runner_of(
        &mut self,
        id: u64,
        edit: impl FnOnce(&mut Runner),
    ) -> Result<(), NotFound> {
        let runner = self.runner_mut(id).ok_or(NotFound::Runner)?;
        edit(runner);
        runner.renew_value(0);
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

    /// Lets job tokens of the project `reader` read the project `path`. Whether both are there.
    pub fn let_read(&mut self, path: &str, reader: &str) -> bool {
        let known = self.projects.iter().any(|project| project.path == reader);
        let mut projects = self.projects.iter_mut();
        let Some(project) = projects.find(|project| project.path == path && known) else {
            return false;
        };
        project.readers.insert(reader.to_owned());
        true
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
        job.cut(0);
        Ok(())
    }

    /// Remembers how everything stands, for a rollback; an earlier memory is forgotten.
    pub fn take_snapshot(&mut self) {
        self.snapshot = None;
        self.snapshot = Some(Box::new(self.clone()));
    }

    /// Goes back to what was remembered, as a server that is restored from a backup does: jobs made
    /// since are gone, their ids are given again, and ended ones run again. What was broken stays
    /// known. Whether there was anything to go back to.
    pub fn roll_back(&mut self) -> bool {
        let Some(old) = self.snapshot.take() else {
            return false;
        };
        let now = std::mem::replace(self, Self::clone(&old));
        self.snapshot = Some(old);
        self.ledger = now.ledger;
        self.settings = now.settings;
        self.calls = now.calls;
        self.ticks = now.ticks + 1;
        for runner in &mut self.runners {
            runner.renew_value(0);
        }
        // Whoever held a trace then holds it no more.
        for job in self.jobs.values_mut() {
            job.trace_locked = false;
        }
        true
    }

    /// What all jobs cost together.
    pub fn totals(&self) -> super::counts::Totals {
        super::counts::Totals::of(self.jobs.values())
    }
}
