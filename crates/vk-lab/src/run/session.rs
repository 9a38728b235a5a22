//! The GitLab side in this process, and the fleet that takes its jobs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vk_ci_config::{Config, Context};

use super::error::RunError;
use super::fleet::Fleet;
use super::options::{FleetOptions, Options, archives};
use super::plan;
use super::source::{CONFIG, Source};
use crate::gitlab::ledger::Broken;
use crate::gitlab::spec::PipelineSpec;
use crate::gitlab::{Commit, Facts, Gitlab, Project};
use crate::serve::{self, Git, Lab, Served};

/// A held job request is answered after at most so long, in nanoseconds; any sooner where there is
/// a job.
const LONG_POLL_NS: u64 = 5_000_000_000;

/// A pipeline that is decided and not made.
#[derive(Debug)]
struct Planned {
    id: u64,
    project: u64,
    commit: Commit,
    spec: PipelineSpec,
}

/// One run's parts.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) fleet: Fleet,
    served: Option<Served>,
    planned: Option<Planned>,
    tags: Vec<String>,
}

impl Session {
    /// Makes the private directory.
    pub(super) async fn open(options: &FleetOptions) -> Result<Self, RunError> {
        Ok(Self {
            fleet: Fleet::open(options).await?,
            served: None,
            planned: None,
            tags: Vec::new(),
        })
    }

    /// Reads the project, opens the GitLab side and decides the pipeline; the jobs' names. No
    /// program is started by this.
    pub(super) async fn prepare(&mut self, options: &Options) -> Result<Vec<String>, RunError> {
        archives(&options.fleet.import)?;
        let dir = self.fleet.dir().to_owned();
        let git = Git::new(&dir).map_err(super::error::file("write git's settings in", &dir))?;
        let source = Source::open(&git, &options.dir, &dir).await?;
        for note in &source.notes {
            eprintln!("vk-lab: {note}");
        }
        // What does not parse is told before anything is made.
        let config = Config::parse(CONFIG, &source.config)?;
        let variables = options.variables.clone();
        let served = serve_project(&source, variables, &dir).await?;
        let lab = Arc::clone(&served.lab);
        self.served = Some(served);
        let planned = plan(&lab, &source, &config, &options.jobs).await?;
        self.tags = plan::tags(&planned.spec);
        let names = planned.spec.jobs.iter().map(|job| job.name.clone());
        let names = names.collect();
        self.planned = Some(planned);
        Ok(names)
    }

    /// What is to be run, in a line.
    pub(super) fn headline(&self) -> String {
        let Some(planned) = &self.planned else {
            return String::new();
        };
        let jobs = planned.spec.jobs.len();
        let sha: String = planned.commit.sha.chars().take(8).collect();
        let plural = if jobs == 1 { "" } else { "s" };
        format!("{} at {sha}: {jobs} job{plural}", planned.commit.git_ref)
    }

    /// Starts the fleet.
    pub(super) async fn start(&mut self, options: &FleetOptions) -> Result<(), RunError> {
        let url = self.served.as_ref().map(|served| served.url.clone());
        self.fleet.start(options, &url.unwrap_or_default()).await
    }

    /// Makes the pipeline; its number.
    pub(super) fn begin(&mut self) -> Result<u64, RunError> {
        let planned = self.planned.as_ref();
        let planned =
            planned.ok_or_else(|| RunError::System(std::io::ErrorKind::NotFound.into()))?;
        let tags = self.tags.clone();
        let id = self.lab().with(|gitlab, now| {
            // The one runner takes whatever there is.
            let _ = gitlab.edit_runner(|runner| runner.tags = tags);
            let (commit, spec) = (planned.commit.clone(), planned.spec.clone());
            gitlab.create_pipeline(planned.id, planned.project, commit, spec, now);
            planned.id
        });
        Ok(id)
    }

    /// The GitLab side; only once it is open.
    #[allow(clippy::expect_used, reason = "prepared before anything asks for it")]
    pub(super) fn lab(&self) -> Arc<Lab> {
        let served = self.served.as_ref().expect("the GitLab side is open");
        Arc::clone(&served.lab)
    }

    /// How a pipeline stands.
    pub(super) fn status(&self, id: u64) -> &'static str {
        let status = self.lab().look(|gitlab, _| gitlab.pipeline_status(id));
        status.unwrap_or("failed")
    }

    /// The daemon ends: everything is settled then.
    pub(super) async fn settle(&mut self) {
        let lab = self.lab();
        // A held job request is answered once the daemon asks for no other.
        let wake = move || {
            let _ = lab.with(|gitlab, _| gitlab.edit_runner(|runner| runner.paused = true));
        };
        let _ = self.fleet.stop("daemon", wake).await;
    }

    /// The broken promises.
    pub(super) fn broken(&self) -> Vec<Broken> {
        self.lab().look(|gitlab, _| gitlab.broken())
    }

    /// Ends everything. What is left.
    pub(super) async fn end(self, orderly: bool) -> Option<String> {
        if let Some(served) = &self.served {
            served.stop();
        }
        // Whatever became of the run: what was found out about KVM need not be found out again.
        self.fleet.remember();
        self.fleet.end(orderly).await
    }
}

/// Opens the GitLab side with the project, on a port of its own.
async fn serve_project(
    source: &Source,
    variables: Option<PathBuf>,
    dir: &Path,
) -> Result<Served, RunError> {
    let options = serve::Options {
        addr: ([127, 0, 0, 1], 0).into(),
        url: None,
        projects: vec![(source.path.clone(), source.repository.clone())],
        variables,
        token_file: dir.join("runner-token"),
        state: Some(dir.join("lab")),
        admin: Some(dir.join("lab.sock")),
        tags: Vec::new(),
        long_poll_ns: LONG_POLL_NS,
        outside: vec![source.root.clone()],
    };
    Ok(serve::open(&options).await?)
}

async fn plan(
    lab: &Lab,
    source: &Source,
    config: &Config,
    names: &[String],
) -> Result<Planned, RunError> {
    let project = lab.look(|gitlab, _| gitlab.project(None).cloned());
    let project = project.ok_or_else(|| RunError::System(std::io::ErrorKind::NotFound.into()))?;
    let id = lab.with(|gitlab, _| gitlab.next_pipeline_id());
    let git_ref = Some(source.git_ref.as_str());
    let commit = lab.git.pin(&project.repository, git_ref, id).await?;
    let context = lab.look(|gitlab, now| context(gitlab, &project, &commit, id, now));
    let given: BTreeSet<&str> = context.project.keys().map(String::as_str).collect();
    let mut spec = plan::pipeline(config.pipeline(&context)?, &given);
    plan::choose(&mut spec, names)?;
    spec.check()?;
    Ok(Planned {
        id,
        project: project.id,
        commit,
        spec,
    })
}

/// What rules are decided with.
fn context(gitlab: &Gitlab, project: &Project, commit: &Commit, id: u64, now: u64) -> Context {
    let facts = Facts {
        id,
        created_ms: now,
        source: "push",
        commit,
    };
    let predefined = gitlab.predefined(project, &facts).into_iter();
    Context {
        predefined: predefined
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        project: gitlab.project_variables(),
    }
}

/// A project's configuration as it stands once everything in it is put together.
pub(crate) fn merged(dir: &Path) -> Result<String, RunError> {
    let scratch = tempfile::tempdir().map_err(RunError::System)?;
    let text = alone(async {
        let git = Git::new(scratch.path()).map_err(RunError::System)?;
        Source::text(&git, dir).await
    })?;
    Ok(Config::parse(CONFIG, &text)?.merged())
}

/// A project's pipeline in the form that `vk-lab trigger` takes.
pub(crate) fn pipeline_json(dir: &Path, variables: Option<PathBuf>) -> Result<String, RunError> {
    let scratch = tempfile::tempdir().map_err(RunError::System)?;
    let mut spec = alone(async {
        let git = Git::new(scratch.path()).map_err(RunError::System)?;
        let source = Source::open(&git, dir, scratch.path()).await?;
        let config = Config::parse(CONFIG, &source.config)?;
        let served = serve_project(&source, variables, scratch.path()).await?;
        let planned = plan(&served.lab, &source, &config, &[]).await;
        served.stop();
        planned.map(|planned| planned.spec)
    })?;
    // Whichever the server that it is given to serves.
    spec.project = None;
    serde_json::to_string_pretty(&spec)
        .map(|text| text + "\n")
        .map_err(|error| RunError::System(error.into()))
}

/// Runs something to its end.
fn alone<T>(what: impl Future<Output = Result<T, RunError>>) -> Result<T, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::System)?;
    runtime.block_on(what)
}
