//! Starting a job's process.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use tokio::process::Command;
use tokio::sync::oneshot;

use super::death::TEST_BOOT_ID;
use super::directory::{JobDir, Plan, Tenant};
use super::left::OF_JOB;
use super::socket;
use super::wire::TEST_VERSIONS;
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
/// In builds with kill points: where the daemon finds what its job processes know under another name.
const OF_TESTS: [(&str, &str); 3] = [
    ("VK_JOB_KILL_AT", "VK_KILL_AT"),
    ("VK_TEST_JOB_WIRE_VERSIONS", TEST_VERSIONS),
    (TEST_BOOT_ID, TEST_BOOT_ID),
];

impl JobProgram {
    /// This program, called with these arguments, in as little of this environment as it needs.
    ///
    /// # Errors
    /// The program's own path cannot be found out.
    pub fn own(arguments: &[&str]) -> io::Result<JobProgram> {
        let passed = PASSED.iter().map(|name| (*name, *name));
        let of_tests = if cfg!(feature = "kill-points") {
            OF_TESTS.as_slice()
        } else {
            &[]
        };
        let environment = passed
            .chain(of_tests.iter().copied())
            .filter_map(|(from, to)| Some((to.into(), std::env::var_os(from)?)));
        Ok(JobProgram {
            program: std::env::current_exe()?,
            arguments: arguments.iter().map(Into::into).collect(),
            environment: environment.collect(),
        })
    }
}

/// Tells how a job's process ended, to whose child it is.
pub type Exit = oneshot::Receiver<ExitStatus>;

/// What came of an attempt to start a job's process.
#[derive(Debug)]
pub enum Spawned {
    /// It runs, and this tells its end.
    Started(Exit),
    /// One runs already, or began before: this one was not started.
    Before,
}

/// Starts the job's process, unless one runs or ever began. Call it within a runtime.
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
    let mut child = Command::new(&by.program)
        .args(&by.arguments)
        .arg(job.path())
        .env_clear()
        .envs(by.environment.iter().cloned())
        .env(OF_JOB, job.path())
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(lock.into_file().map_or_else(Stdio::null, Stdio::from))
        .stderr(Stdio::from(log))
        .spawn()
        .map_err(FileError::of("start", &by.program))?;
    tracing::debug!(job = %job.job(), pid = child.id(), "a job's process was started");
    let (tell, exit) = oneshot::channel();
    tokio::spawn(async move {
        // Waited for whether or not somebody listens.
        if let Ok(status) = child.wait().await {
            let _ = tell.send(status);
        }
    });
    Ok(Spawned::Started(exit))
}
