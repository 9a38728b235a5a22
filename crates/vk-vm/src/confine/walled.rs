//! A program of the owner's own behind walls, beside it: its streams, descriptors and environment are
//! the owner's, and so is its process group.
//!
//! Unlike what a [`Holder`](super::Holder) starts, it may be one of many that come and go: one exec of
//! this program makes the walls, starts the other in a PID namespace, and waits for it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getrlimit, set_parent_process_death_signal,
    setrlimit, waitpid,
};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::drop_rights::drop_rights;
use super::execute::INSIDE;
use super::identity::{enter_as, explain};
use super::program::Place;
use super::system_calls::refuse_the_dangerous;
use super::view;
use crate::sys;

/// The exit code of [`run_walled`] where there is no wall, and so nothing was run; what stands on stderr
/// says why.
pub const UNWALLED: u8 = 125;
/// What a shell adds to the number of the signal that ended a program.
const BY_SIGNAL: i32 = 128;

/// What is around such a program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Walled {
    /// An empty directory that the view is mounted on; nothing of it is seen outside.
    pub at: PathBuf,
    /// Everything it sees.
    pub places: Vec<Place>,
    /// The directory it starts in, one of its places.
    pub directory: PathBuf,
    /// Whether the host's network is its own; it has none otherwise.
    pub network: bool,
    /// Bytes of the largest file it may write.
    pub file_max: u64,
    /// Bytes of memory that each of its processes may have.
    pub memory_max: Option<u64>,
}

/// The stage: makes the walls, runs the program in them, and gives its exit code: 128 and the number
/// of the signal that ended it, which is then said on stderr, too; [`UNWALLED`] where it did not run.
///
/// Runs in a process of its own that has one thread.
#[must_use]
pub fn run_walled(walled: &Walled, program: &Path, args: &[OsString]) -> ExitCode {
    run(walled, program, args).unwrap_or_else(|error| {
        // With nowhere to write to there is still the code.
        let _ = writeln!(io::stderr(), "{error}");
        UNWALLED.into()
    })
}

fn run(walled: &Walled, program: &Path, args: &[OsString]) -> io::Result<ExitCode> {
    limit(walled)?;
    let mut flags = UnshareFlags::NEWPID
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    if !walled.network {
        flags |= UnshareFlags::NEWNET;
    }
    enter_as(INSIDE, flags)?;
    // The first process of a PID namespace is deaf to signals of its own, SIGPIPE and SIGXFSZ too: a
    // program that is not made for it must not be it.
    match sys::fork()? {
        Some(first) => Ok(wait(first)?.into()),
        None => run_inside(walled, program, args),
    }
}

/// As the first process of the PID namespace.
fn run_inside(walled: &Walled, program: &Path, args: &[OsString]) -> io::Result<ExitCode> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| explain("ask for the parent's death signal", e))?;
    rustix::system::sethostname(b"vm").map_err(|e| explain("set the host name", e))?;
    view::enter(&walled.at, &walled.places)?;
    let directory = &walled.directory;
    std::env::set_current_dir(directory)
        .map_err(|e| explain(&format!("enter {}", directory.display()), e))?;
    drop_rights().map_err(|e| explain("give up capabilities", e))?;
    refuse_the_dangerous().map_err(|e| explain("forbid dangerous system calls", e))?;
    let child = Command::new(program)
        .args(args)
        .spawn()
        .map_err(|e| explain(&format!("execute {}", program.display()), e))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let ended = wait(pid.ok_or_else(|| io::Error::other("a child without a number"))?)?;
    if let Ended::Signal(signal) = ended {
        // The owner sees a code, which may also be the program's own.
        let program = program.display();
        let _ = writeln!(io::stderr(), "{program} ended by signal {signal}");
    }
    Ok(ended.into())
}

/// How a process ended.
#[derive(Clone, Copy)]
enum Ended {
    Code(i32),
    Signal(i32),
}

impl From<Ended> for ExitCode {
    /// As a shell tells it.
    fn from(ended: Ended) -> ExitCode {
        let code = match ended {
            Ended::Code(code) => code,
            Ended::Signal(signal) => BY_SIGNAL + signal,
        };
        u8::try_from(code).map_or(ExitCode::FAILURE, Into::into)
    }
}

/// Waits for one child, burying others on the way.
fn wait(of: Pid) -> io::Result<Ended> {
    loop {
        let (pid, status) = match waitpid(None, WaitOptions::empty()) {
            Ok(Some(ended)) => ended,
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(explain("wait for the program", e)),
        };
        let ended = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Ended::Code(code),
            (None, Some(signal)) => Ended::Signal(signal),
            (None, None) => continue,
        };
        if pid == of {
            return Ok(ended);
        }
    }
}

/// Sets its limits, or lower ones that there are.
fn limit(walled: &Walled) -> io::Result<()> {
    let limits = [
        (Resource::Core, Some(0), "forbid core dumps"),
        (Resource::Fsize, Some(walled.file_max), "limit its files"),
        (Resource::Data, walled.memory_max, "limit its memory"),
    ];
    for (resource, wanted, what) in limits {
        let Some(wanted) = wanted else { continue };
        let most = getrlimit(resource)
            .maximum
            .map_or(wanted, |most| most.min(wanted));
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).map_err(|e| explain(what, e))?;
    }
    // Where the host's memory ends, it is what goes. A host that has no such thing goes without.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}
