//! The job's root and its further trees, assembled from disks or directories.
//!
//! In the agent's own mount namespace they lie below its state directory: `image`, `writable`, their
//! overlay `root`, and `trees/N` for the N-th further tree (`shown/N` for its read-only face). The
//! job's namespace is a copy whose root is `root`; what is mounted below it later arrives there too,
//! for it is shared.

mod kernel;
mod overlay;
mod resolver;
mod volume;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use vk_guest_proto::{Failure, FailureCode, MountRoot, MountTree, TreeAccess};

use crate::agent::Agent;
use crate::context::{OrFail, fail};
use crate::root::JobRoot;
use crate::sys::{JobMounts, job_mounts};
use overlay::{Overlay, mount_overlay};
use volume::{attach, show_read_only};

/// What is mounted, and the turn to mount more.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Mutex<Option<Mounted>>);

#[derive(Debug)]
struct Mounted {
    /// The job's root as the agent's own namespace has it: what is mounted there, the job sees.
    outside: JobRoot,
    writable: std::path::PathBuf,
    trees: u32,
    /// The trees that are shown read-only, and where.
    shown: Vec<(Vec<u8>, PathBuf)>,
}

/// Assembles the job's root and puts it in place.
pub(crate) fn mount_root(agent: &Agent, plan: &MountRoot) -> Result<(), Failure> {
    let mut mounted = agent
        .mounts
        .0
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if mounted.is_some() {
        return fail(FailureCode::Invalid, "the job's root is mounted already");
    }
    let image = attach(agent.mode, &plan.image, &agent.state.join("image"))?;
    let writable = attach(agent.mode, &plan.writable, &agent.state.join("writable"))?;
    let at = agent.state.join("root");
    let overlay = Overlay {
        lower: &image,
        beneath: &[],
        writable: &writable.join("root"),
        mode: agent.mode,
    };
    mount_overlay(&overlay, &at)?;
    let what = || format!("share {}", at.display());
    mount_change(&at, MountPropagationFlags::SHARED).or_fail(what)?;
    let outside = JobRoot::plain(directory(&at)?);
    kernel::mount_all(agent.mode, &outside)?;
    if let Some(text) = &agent.resolv_conf {
        resolver::name(&outside, text)?;
    }
    let JobMounts { root, namespace } = enter(&at)?;
    agent.set_root(JobRoot::mounted(root, namespace, directory(&writable)?));
    *mounted = Some(Mounted {
        outside,
        writable,
        trees: 0,
        shown: Vec::new(),
    });
    Ok(())
}

/// Makes the job's namespace.
fn enter(root: &Path) -> Result<JobMounts, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let what = || "make the job's mount namespace".to_owned();
    let path = std::ffi::CString::new(root.as_os_str().as_bytes())
        .map_err(std::io::Error::other)
        .or_fail(what)?;
    job_mounts(&path).or_fail(what)
}

/// Mounts a further tree in the job's root.
pub(crate) fn mount_tree(agent: &Agent, plan: &MountTree) -> Result<(), Failure> {
    let mut mounted = agent
        .mounts
        .0
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(mounted) = mounted.as_mut() else {
        return fail(FailureCode::Invalid, "the job's root is not mounted yet");
    };
    if plan.at.first() != Some(&b'/') {
        return fail(FailureCode::Invalid, "a tree's place is not absolute");
    }
    mounted.trees += 1;
    let tree = attach(
        agent.mode,
        &plan.volume,
        &agent.state.join(format!("trees/{}", mounted.trees)),
    )?;
    let mut place = mounted.outside.make_dirs(&plan.at, 0o755, None)?;
    // What is shown there already becomes a layer of the overlay, so that what it hides is seen, too.
    let mut below = Vec::new();
    if plan.access == TreeAccess::Overlay {
        let shown = mounted.shown.iter().rposition(|(at, _)| *at == plan.at);
        if let Some((_, path)) = shown.map(|at| mounted.shown.remove(at)) {
            let at = format!("/proc/self/fd/{}", place.as_raw_fd());
            let what = || format!("uncover {at}");
            unmount(at.as_str(), UnmountFlags::DETACH).or_fail(what)?;
            place = mounted.outside.make_dirs(&plan.at, 0o755, None)?;
            below.push(path);
        }
    }
    // A path of the job's cannot be given to mount: it would follow the job's symlinks out of the
    // root.
    let at = format!("/proc/self/fd/{}", place.as_raw_fd());
    match plan.access {
        TreeAccess::ReadOnly => {
            let beside = agent.state.join(format!("shown/{}", mounted.trees));
            show_read_only(&tree, &beside, Path::new(&at))?;
            mounted.shown.push((plan.at.clone(), tree));
            Ok(())
        }
        TreeAccess::Overlay => {
            let writable = mounted.writable.join(format!("trees/{}", mounted.trees));
            // What a script has put there before the tree came stays to be seen.
            let used = std::fs::read_dir(&at).is_ok_and(|mut entries| entries.next().is_some());
            let covered = used.then_some(Path::new(&at));
            let beneath = below.iter().map(PathBuf::as_path).chain(covered);
            let overlay = Overlay {
                lower: &tree,
                beneath: &beneath.collect::<Vec<_>>(),
                writable: &writable,
                mode: agent.mode,
            };
            mount_overlay(&overlay, Path::new(&at))
        }
    }
}

fn directory(path: &Path) -> Result<OwnedFd, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).or_fail(|| format!("open {}", path.display()))
}
