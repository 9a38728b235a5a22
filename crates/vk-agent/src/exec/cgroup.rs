//! A cgroup for each command, where the guest has cgroup v2: its `cgroup.kill` ends even a fork bomb
//! in one go. Where there is none, [`super::tree`] goes by descent alone.

use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use vk_guest_proto::Failure;

use crate::context::OrFail;

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
