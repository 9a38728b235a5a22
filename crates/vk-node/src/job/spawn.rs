//! Starting a job's process.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use super::directory::{JobDir, Plan, Tenant};
use super::socket;
use crate::durable::FileError;

/// The program of job processes.
#[derive(Clone, Debug)]
pub struct JobProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments; the job's directory follows them.
    pub arguments: Vec<OsString>,
    /// Its whole environment: no secret is ever in it.
    pub environment: Vec<(OsString, OsString)>,
}

/// Variables of the daemon that its job processes get too.
const PASSED: [&str; 8] = [
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "VK_LOG",
    "VK_ALLOW_PROCESS_VMM",
    "VK_TEST_ROOT",
];
/// Where in builds with kill points the daemon finds its job processes' `VK_KILL_AT`.
const JOB_KILL_AT: &str = "VK_JOB_KILL_AT";

impl JobProgram {
    /// This program, called with these arguments, in as little of this environment as it needs.
    ///
    /// # Errors
    /// The program's own path cannot be found out.
    pub fn own(arguments: &[&str]) -> io::Result<JobProgram> {
        let passed = PASSED.iter().map(|name| (*name, *name));
        let kill = cfg!(feature = "kill-points").then_some((JOB_KILL_AT, "VK_KILL_AT"));
        let environment = passed
            .chain(kill)
            .filter_map(|(from, to)| Some((to.into(), std::env::var_os(from)?)));
        Ok(JobProgram {
            program: std::env::current_exe()?,
            arguments: arguments.iter().map(Into::into).collect(),
            environment: environment.collect(),
        })
    }
}

/// What came of an attempt to start a job's process.
#[derive(Debug, PartialEq, Eq)]
pub enum Spawned {
    /// It runs.
    Started,
    /// One runs already, or began before: this one was not started.
    Before,
}

/// Starts the job's process, unless one runs or ever began.
///
/// # Errors
/// It cannot be started.
pub fn spawn(job: &JobDir, plan: &Plan, by: &JobProgram) -> Result<Spawned, FileError> {
    let lock = match job.tenant()? {
        Tenant::Lives => return Ok(Spawned::Before),
        Tenant::None(_) if job.began() => return Ok(Spawned::Before),
        Tenant::None(lock) => lock,
    };
    job.write_plan(plan)?;
    let listener = socket::listen(job.path(), "job.sock")
        .map_err(FileError::of("listen on", &job.file("job.sock")))?;
    let log = job.file("job.log");
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&log)
        .map_err(FileError::of("open", &log))?;
    let child = Command::new(&by.program)
        .args(&by.arguments)
        .arg(job.path())
        .env_clear()
        .envs(by.environment.iter().cloned())
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(lock.into_file().map_or_else(Stdio::null, Stdio::from))
        .stderr(Stdio::from(log))
        .spawn()
        .map_err(FileError::of("start", &by.program))?;
    tracing::debug!(job = %job.job(), pid = child.id(), "a job's process was started");
    Ok(Spawned::Started)
}
