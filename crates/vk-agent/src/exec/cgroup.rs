//! A cgroup for each command, where the guest has cgroup v2: its `cgroup.kill` ends even a fork bomb
//! in one go. Where there is none, [`super::tree`] goes by descent alone.

use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};
use vk_guest_proto::Failure;

use crate::context::OrFail;

/// Least processes and threads that commands may not take.
const KEPT_TASKS: u64 = 256;

/// The cgroups of one agent.
#[derive(Debug)]
pub(crate) struct Cgroups {
    dir: PathBuf,
}

impl Cgroups {
    /// Cgroups below a mounted cgroup v2 hierarchy.
    pub(crate) fn below(mount: &Path) -> std::io::Result<Self> {
        let dir = mount.join("vk");
        std::fs::create_dir(&dir)?;
        // Whatever the commands do, the agent keeps a share of the processor as large as theirs
        // together, and threads to serve the host with. A kernel without these controllers still
        // has cgroups.
        let control = mount.join("cgroup.subtree_control");
        if std::fs::write(&control, "+cpu +pids").is_err() {
            for controller in ["+cpu", "+pids"] {
                let _ = std::fs::write(&control, controller);
            }
        }
        let _ = std::fs::write(dir.join("pids.max"), most_tasks().to_string());
        Ok(Self { dir })
    }

    /// The cgroup of a stream's command, and its `cgroup.procs`.
    pub(crate) fn make(&self, stream: u32) -> Result<(Cgroup, OwnedFd), Failure> {
        let dir = self.dir.join(stream.to_string());
        let what = || format!("make the cgroup {}", dir.display());
        std::fs::create_dir(&dir).or_fail(what)?;
        let cgroup = Cgroup { dir: dir.clone() };
        let procs = rustix::fs::open(
            dir.join("cgroup.procs"),
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .or_fail(what)?;
        Ok((cgroup, procs))
    }
}

/// Processes and threads that all commands may have together: what the kernel can have, less a part
/// for itself and the agent.
///
/// The kernel gives its init half of its threads as a limit of processes. Its numbers go to 32768, or
/// 1024 for each processor; both could be read below `/proc/sys`, which takes longer than all of this.
fn most_tasks() -> u64 {
    let half = getrlimit(Resource::Nproc).maximum.unwrap_or(u64::MAX);
    let processors = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
    let numbers = u64::from(processors).saturating_mul(1024).max(1 << 15);
    let most = half.saturating_mul(2).min(numbers);
    most.saturating_sub((most / 8).max(KEPT_TASKS))
        .max(KEPT_TASKS)
}

/// One command's cgroup; removed with it, once it is empty.
#[derive(Debug)]
pub(crate) struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// Kills every process in it at once. Kernels before 5.14 cannot.
    pub(crate) fn kill(&self) -> bool {
        std::fs::write(self.dir.join("cgroup.kill"), "1").is_ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Not empty when the command left daemons running that shall live on: then it stays.
        let _ = std::fs::remove_dir(&self.dir);
    }
}
