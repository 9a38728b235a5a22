//! What every program expects of a root: `/proc`, `/sys`, `/dev` and what is in them.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use rustix::fd::AsRawFd;
use rustix::fs::{AtFlags, Mode as Bits, OFlags, openat, symlinkat, unlinkat};
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive};
use vk_guest_proto::{Failure, Mode};

use crate::context::OrFail;
use crate::fault::log;
use crate::root::JobRoot;

/// Type, place, flags, options.
type Mount = (&'static str, &'static str, MountFlags, &'static CStr);

const CLOSED: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);
const QUIET: MountFlags = MountFlags::NOSUID.union(MountFlags::NOEXEC);

const MACHINE: [Mount; 6] = [
    ("proc", "/proc", CLOSED, c""),
    ("sysfs", "/sys", CLOSED, c""),
    ("cgroup2", "/sys/fs/cgroup", CLOSED, c""),
    ("devtmpfs", "/dev", MountFlags::NOSUID, c"mode=0755"),
    (
        "devpts",
        "/dev/pts",
        QUIET,
        c"gid=5,mode=0620,ptmxmode=0666",
    ),
    (
        "tmpfs",
        "/dev/shm",
        MountFlags::NOSUID.union(MountFlags::NODEV),
        c"mode=1777",
    ),
];

const PROCESS: [Mount; 4] = [
    ("proc", "/proc", CLOSED, c""),
    ("tmpfs", "/dev", MountFlags::NOSUID, c"mode=0755"),
    (
        "devpts",
        "/dev/pts",
        QUIET,
        c"newinstance,mode=0620,ptmxmode=0666",
    ),
    (
        "tmpfs",
        "/dev/shm",
        MountFlags::NOSUID.union(MountFlags::NODEV),
        c"mode=1777",
    ),
];

/// Devices that a namespace, which may not make any, borrows from around it.
const BORROWED: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Names in `/dev` that the kernel does not make.
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("/proc/kcore", "core"),
];

/// Mounts all of it in the job's root.
pub(super) fn mount_all(mode: Mode, root: &JobRoot) -> Result<(), Failure> {
    match mode {
        Mode::Vm => MACHINE.iter().try_for_each(|one| mount_one(root, one))?,
        Mode::Process => {
            for one in &PROCESS {
                if let Err(failure) = mount_one(root, one) {
                    // A namespace may not be allowed all of it; a job may do without.
                    log(&failure.message);
                    borrow(root, one.1);
                }
            }
            borrow(root, "/sys");
            BORROWED.iter().for_each(|name| borrow_device(root, name));
        }
    }
    let dev = root.open_dir(b"/dev").or_fail(|| "open /dev".into())?;
    for (target, name) in LINKS {
        // A second job root in the same machine finds them there already.
        let _ = symlinkat(target, &dev, name);
    }
    if mode == Mode::Process {
        let _ = unlinkat(&dev, "ptmx", AtFlags::empty());
        let _ = symlinkat("pts/ptmx", &dev, "ptmx");
    }
    Ok(())
}

fn mount_one(root: &JobRoot, (kind, at, flags, options): &Mount) -> Result<(), Failure> {
    let place = root.make_dirs(at.as_bytes(), 0o755, None)?;
    mount(*kind, fd_path(&place), *kind, *flags, Some(*options))
        .or_fail(|| format!("mount {kind} at {at}"))
}

/// Shows what the agent sees at a place to the job at the same place.
fn borrow(root: &JobRoot, at: &str) {
    let place = match root.make_dirs(at.as_bytes(), 0o755, None) {
        Ok(place) => place,
        Err(failure) => return log(&failure.message),
    };
    if let Err(errno) = mount_bind_recursive(at, fd_path(&place)) {
        log(&format!("show the job {at}: {errno}"));
    }
}

fn borrow_device(root: &JobRoot, name: &str) {
    let shown = root.open_dir(b"/dev").and_then(|dev| {
        let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let place = openat(&dev, name, flags, Bits::from_raw_mode(0o666))?;
        mount_bind(Path::new("/dev").join(name), fd_path(&place))
    });
    if let Err(errno) = shown {
        log(&format!("show the job /dev/{name}: {errno}"));
    }
}

fn fd_path(fd: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}
