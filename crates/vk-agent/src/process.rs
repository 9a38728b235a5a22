//! The agent as an ordinary process, in namespaces that somebody else made.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use vk_guest_proto::{Failure, FailureCode, Mode, SECRET_LEN, Secret};

use crate::agent::Setup;
use crate::context::{OrFail, fail};
use crate::control::Over;
use crate::dial::Address;

/// What the command line of `vk-agent process` says.
#[derive(Debug)]
pub struct Arguments {
    /// Where the host listens.
    pub dial: Address,
    /// A file of the 32 bytes of the secret, or `-` for standard input. A file is removed once it
    /// is read.
    pub secret: PathBuf,
    /// A directory of the agent's own, for what it mounts.
    pub state: PathBuf,
}

/// Serves the host until it asks no more.
///
/// # Errors
/// No secret, no host, or a namespace in which the agent cannot work.
pub(crate) fn run(arguments: Arguments) -> Result<Over, Failure> {
    let Arguments {
        dial,
        secret,
        state,
    } = arguments;
    let secret = take_secret(&secret)?;
    if rustix::process::getpid().is_init() {
        own_namespaces()?;
    }
    crate::control::run(Setup {
        mode: Mode::Process,
        address: dial,
        secret,
        cgroups: None,
        state,
        resolv_conf: None,
    })
}

/// As the init of a PID namespace: its `/proc` must be the namespace's, or no process would be
/// found; and no mount may leak out.
fn own_namespaces() -> Result<(), Failure> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).or_fail(|| "keep mounts to the namespace".into())?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).or_fail(|| "mount proc at /proc".into())
}

fn take_secret(path: &Path) -> Result<Secret, Failure> {
    let what = || format!("read the secret {}", path.display());
    let mut bytes = [0; SECRET_LEN];
    if path == Path::new("-") {
        std::io::stdin().read_exact(&mut bytes).or_fail(what)?;
        return Ok(Secret::take(&mut bytes));
    }
    let mut read = fs::read(path).or_fail(what)?;
    fs::remove_file(path).or_fail(what)?;
    match read.first_chunk_mut::<SECRET_LEN>() {
        Some(bytes) => Ok(Secret::take(bytes)),
        None => fail(
            FailureCode::Invalid,
            format!("{}: not {SECRET_LEN} bytes", what()),
        ),
    }
}
