//! A job's process: `vk node job <dir>`, started by the daemon and surviving it.
//!
//! The daemon hands it two descriptors it cannot get wrong: the listening socket as standard input
//! and the held lock as standard output, so that the job is alive, for everybody who asks its lock,
//! from before the process exists until it is gone.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use vk_hub_proto::JobId;
use vk_hub_proto::job::{CiJob, FailureClass, JobResult};
use vk_node_core::Stop;
use vk_node_core::io::{ClosingLine, DeadEnd, RunPlan};
use vk_node_core::ledger::Resource;

use super::closing::close_output;
use super::directory::{JobDir, JobDirError};
use super::serve;
use super::start_file::{RegistryToken, Started};
use super::wire::Progress;
use crate::durable::FileError;
use crate::past_runs::PastRuns;
use crate::session::chain;

/// Orders that wait for the job.
const ORDERS: usize = 16;
/// How long subscribers get to read the result.
const FAREWELL: Duration = Duration::from_secs(5);

/// What runs a job, from its begin to its result.
///
/// It appends to `output` in the job's directory and writes `result.json` there last, the output
/// synced before, both durably; whatever else it makes on disk lies in `work` there. What it starts
/// dies with this process, but for gits, which the node ends when it cleans up. It takes neither memory nor
/// disk before [`Order::Grant`].
pub trait Runner {
    /// Runs the job. `orders` is closed early where nobody can give any more; the job goes on.
    fn run(
        self: Box<Self>,
        job: Assignment,
        orders: mpsc::Receiver<Order>,
        progress: watch::Sender<Progress>,
    ) -> Running;
}

/// A job that runs. An error means that no result could be recorded.
pub type Running = Pin<Box<dyn Future<Output = Result<JobResult, RunError>> + Send>>;
/// Why no result could be recorded.
pub type RunError = Box<dyn std::error::Error + Send + Sync>;

/// A job to run.
#[derive(Debug)]
pub struct Assignment {
    /// The hub's ID.
    pub job: JobId,
    /// The job's own directory.
    pub dir: PathBuf,
    /// The job, with its secrets.
    pub spec: Box<CiJob>,
    /// The registry token that came with it.
    pub registry: Option<RegistryToken>,
    /// Its share of the node.
    pub plan: RunPlan,
    /// What the daemon's program left for this one.
    pub settings: serde_json::Value,
}

/// What a job is told while it runs. Repeats are harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It has all it asked for.
    Grant,
    /// It will not get what it asked for (ADM-34).
    Deny(Resource),
    /// It is to stop.
    Stop(Stop),
}

/// A job process that could not begin, or left no result.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Somebody started it by hand.
    #[error("`vk node job` is started by `vk node run` alone: {0}")]
    NotByTheDaemon(&'static str),
    /// A job never runs twice.
    #[error("a process of the job in {} began before", .0.display())]
    Began(PathBuf),
    /// The directory's name.
    #[error("{} is no job's directory", .0.display())]
    NoJob(PathBuf),
    /// A file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file does not say what it must.
    #[error(transparent)]
    Directory(#[from] JobDirError),
    /// The system refused something.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// No result could be recorded.
    #[error("the job left no result")]
    Run(#[source] RunError),
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> ProcessError {
    move |source| ProcessError::System { what, source }
}

/// The descriptors that the daemon handed over.
struct Inherited {
    lock: OwnedFd,
    listener: UnixListener,
}

/// Runs the job in `dir` to its end.
///
/// Call it first thing: the standard streams are not what they seem.
///
/// # Errors
/// See [`ProcessError`].
pub fn run<R: Runner>(
    dir: &Path,
    runner: impl FnOnce() -> Result<Box<R>, RunError>,
) -> Result<(), ProcessError> {
    let job = dir
        .file_name()
        .and_then(|name| name.to_str()?.parse().ok())
        .ok_or_else(|| ProcessError::NoJob(dir.to_owned()))?;
    let job = JobDir::new(job, dir.to_owned());
    let inherited = inherit(&job)?;
    // In the daemon's session a terminal's signals would reach the job too.
    let _ = rustix::process::setsid();
    if job.began() {
        return Err(ProcessError::Began(dir.to_owned()));
    }
    let plan = job.plan()?;
    let Started { spec, registry } = job.start()?;
    job.mark_began()?;
    let runner = runner().map_err(ProcessError::Run)?;
    let past_runs = plan.past_runs.map(|dir| PastRuns::in_dir(dir).of(&spec));
    let mem_mib = plan.run.mem_mib;
    let assignment = Assignment {
        job: job.job(),
        dir: dir.to_owned(),
        spec,
        registry,
        plan: plan.run,
        settings: plan.settings,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(system("start the runtime"))?;
    let over = |result: &JobResult| {
        if let Some(Err(error)) = past_runs.map(|runs| runs.add(mem_mib, result)) {
            let error = chain(&error);
            tracing::warn!(error, "what the job used is not kept for its next run");
        }
    };
    let ended = runtime.block_on(live(&job, assignment, runner, inherited.listener, over));
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(inherited.lock);
    ended
}

/// Takes the descriptors over, so that no program started from here inherits them.
fn inherit(job: &JobDir) -> Result<Inherited, ProcessError> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let path = job.file("lock");
    let of = std::fs::metadata(&path).map_err(FileError::of("find", &path))?;
    let held =
        rustix::fs::fstat(&stdout).map_err(|error| system("look at the lock")(error.into()))?;
    if (of.dev(), of.ino()) != (held.st_dev, held.st_ino) {
        let what = "standard output is not the job's lock";
        return Err(ProcessError::NotByTheDaemon(what));
    }
    let keep = |fd| rustix::io::fcntl_dupfd_cloexec(fd, 3);
    let lock = keep(stdout.as_fd()).map_err(|error| system("keep the lock")(error.into()))?;
    let socket = keep(stdin.as_fd()).map_err(|error| system("keep the socket")(error.into()))?;
    let listens = rustix::net::sockopt::socket_acceptconn(&socket).unwrap_or(false);
    if !listens {
        let what = "standard input is not the job's socket";
        return Err(ProcessError::NotByTheDaemon(what));
    }
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(system("open /dev/null"))?;
    rustix::stdio::dup2_stdin(&null)
        .and_then(|()| rustix::stdio::dup2_stdout(&null))
        .map_err(|error| system("let go of the standard streams")(error.into()))?;
    let listener = UnixListener::from(socket);
    listener
        .set_nonblocking(true)
        .map_err(system("listen for the daemon"))?;
    Ok(Inherited { lock, listener })
}

async fn live<R: Runner + ?Sized>(
    job: &JobDir,
    assignment: Assignment,
    runner: Box<R>,
    listener: UnixListener,
    over: impl FnOnce(&JobResult),
) -> Result<(), ProcessError> {
    let listener =
        tokio::net::UnixListener::from_std(listener).map_err(system("listen for the daemon"))?;
    let terminate = signal(SignalKind::terminate()).map_err(system("wait for signals"))?;
    let (orders, receive) = mpsc::channel(ORDERS);
    let (progress, watch) = watch::channel(Progress::default());
    let server = serve::Server::start(listener, orders.clone(), watch);
    let interrupting = tokio::spawn(interrupt(terminate, orders));
    let ended = runner.run(assignment, receive, progress.clone()).await;
    interrupting.abort();
    let result = ended.or_else(|error| fail(job, &error).map_err(|_| ProcessError::Run(error)))?;
    over(&result);
    progress.send_modify(|progress| {
        progress.output_len = progress.output_len.max(result.output_len);
        progress.result = Some(result);
    });
    job.leave_state(&progress.borrow());
    server.farewell(FAREWELL).await;
    Ok(())
}

/// The result of a job that could not be run at all: `system`, with a last line that says why.
fn fail(job: &JobDir, error: &RunError) -> Result<JobResult, FileError> {
    let why = chain(error.as_ref());
    tracing::error!(job = %job.job(), error = why, "the job cannot be run");
    let own_len = job.output_len();
    let line = ClosingLine {
        own_len,
        at: own_len,
        end: DeadEnd::NotSpawned { why: why.clone() },
    };
    let output_len = close_output(job, &line)?;
    let result = JobResult {
        failure: Some(FailureClass::System),
        exit_code: None,
        message: Some(why.chars().take(4096).collect()),
        output_len,
        artifacts: Vec::new(),
        usage: None,
    };
    job.write_result(&result)?;
    Ok(result)
}

/// A host that stops ends its processes by name or not at all: the job ends `interrupted` (FAIL-12).
async fn interrupt(mut terminate: Signal, orders: mpsc::Sender<Order>) {
    while terminate.recv().await.is_some() {
        if orders.send(Order::Stop(Stop::Interrupt)).await.is_err() {
            return;
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Grant => f.write_str("grant"),
            Order::Deny(short) => write!(f, "deny: {short:?} is short"),
            Order::Stop(how) => write!(f, "stop: {how:?}"),
        }
    }
}
