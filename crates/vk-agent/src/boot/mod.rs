//! The agent as a machine's init: from the kernel's hand to the host's first request, and to power
//! off.

mod command_line;
mod modules;
mod network;

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode as Bits, OFlags, open};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::system::{RebootCommand, reboot};
use vk_guest_proto::{Failure, FailureCode, Mode, SECRET_LEN, Secret};

use crate::agent::Setup;
use crate::context::{OrFail, fail};
use crate::control::Over;
use crate::fault::{last_words, log};
use crate::sys::loopback_up;
use command_line::{Action, CommandLine};

/// Where the boot bundle's own files are in the initramfs.
const BUNDLE: &str = "/vk";
/// Where the agent keeps what it mounts.
const STATE: &str = "/run/vk";
/// Most open files of a process: what container engines give.
const OPEN_FILES: u64 = 1 << 20;

/// Runs the machine. Does not return: at the end it is powered off.
pub fn run() -> ! {
    let why = match live() {
        Ok(Over::PowerOff) => None,
        Ok(Over::HostGone(why)) => Some(why),
        Err(failure) => Some(failure.message),
    };
    if let Some(why) = why {
        last_words(&why);
    }
    power_off()
}

/// Switches the machine off. What the disk has not yet is lost: it does not outlive the job, and who
/// wants it kept asks for a sync first.
pub fn power_off() -> ! {
    loop {
        let result = reboot(RebootCommand::PowerOff);
        log(&format!("power off: {result:?}"));
        // Only without a power switch does the kernel come back here.
        let _ = reboot(RebootCommand::Restart);
        std::thread::park();
    }
}

fn live() -> Result<Over, Failure> {
    mount_own()?;
    let line = fs::read("/proc/cmdline").or_fail(|| "read /proc/cmdline".into())?;
    let line = CommandLine::parse(&line)?;
    if line.action == Action::PowerOff {
        return Ok(Over::PowerOff);
    }
    modules::load_all(Path::new(BUNDLE), modules::ALWAYS);
    let secret = take_secret(&Path::new(BUNDLE).join("secret"))?;
    prepare();
    if let Some(network) = line.network {
        network.bring_up(Path::new(BUNDLE))?;
    }
    crate::control::run(Setup {
        mode: Mode::Vm,
        address: line.dial,
        secret,
        cgroups: mount_cgroups(),
        state: PathBuf::from(STATE),
        resolv_conf: line.network.map(network::Network::resolv_conf),
    })
}

/// The agent's own `/proc`, `/sys`, `/dev` and `/run`; the job gets others.
fn mount_own() -> Result<(), Failure> {
    for (kind, at) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/run"),
    ] {
        let what = || format!("mount {kind} at {at}");
        fs::create_dir_all(at).or_fail(what)?;
        mount(kind, at, kind, MountFlags::NOSUID, None).or_fail(what)?;
    }
    fs::create_dir_all(STATE).or_fail(|| format!("make {STATE}"))
}

/// Reads the secret and removes it: nothing in the guest needs it any more.
fn take_secret(path: &Path) -> Result<Secret, Failure> {
    let what = || format!("read the secret {}", path.display());
    let mut bytes = fs::read(path).or_fail(what)?;
    fs::remove_file(path).or_fail(what)?;
    let Some(bytes) = bytes.first_chunk_mut::<SECRET_LEN>() else {
        return fail(
            FailureCode::Invalid,
            format!("{}: not {SECRET_LEN} bytes", what()),
        );
    };
    Ok(Secret::take(bytes))
}

/// What makes the machine a good one and is not worth failing for.
fn prepare() {
    if let Err(error) = loopback_up() {
        log(&format!("bring the loopback interface up: {error}"));
    }
    let limit = Rlimit {
        current: Some(OPEN_FILES),
        maximum: Some(OPEN_FILES),
    };
    if let Err(errno) = setrlimit(Resource::Nofile, limit) {
        log(&format!("raise the limit of open files: {errno}"));
    }
    // When memory runs out, the kernel shall take the job's processes, not the agent.
    if let Err(error) = fs::write("/proc/self/oom_score_adj", "-1000") {
        log(&format!("be spared when memory runs out: {error}"));
    }
}

/// Cgroup v2 for the commands; without it, they are killed one by one.
fn mount_cgroups() -> Option<PathBuf> {
    let at = Path::new(STATE).join("cgroup");
    let mounted = fs::create_dir_all(&at)
        .and_then(|()| Ok(mount("cgroup2", &at, "cgroup2", MountFlags::NOSUID, None)?));
    match mounted {
        Ok(()) => Some(at),
        Err(error) => {
            log(&format!("mount cgroup2: {error}"));
            None
        }
    }
}

/// Makes sure that descriptors 0 to 2 are open, so that none of the agent's own becomes one of them.
pub fn fill_standard_descriptors() {
    while let Ok(fd) = open("/dev/null", OFlags::RDWR, Bits::empty()) {
        if rustix::fd::AsRawFd::as_raw_fd(&fd) > 2 {
            return;
        }
        std::mem::forget(fd);
    }
}
