//! A mount namespace whose root is the job's root.

use std::ffi::{CStr, c_int};
use std::io;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};

use super::after_fork::errno;

/// The namespace, which lives as long as anyone holds a descriptor of it.
pub(crate) struct JobMounts {
    /// Its root directory.
    pub(crate) root: OwnedFd,
    /// Itself.
    pub(crate) namespace: OwnedFd,
}

/// Makes the namespace: a copy of the agent's mounts, the job's root moved onto the root, and what
/// the agent mounts below it later comes along, but nothing goes back.
///
/// A thread makes it, which has its own mounts, root and working directory from then on and ends with
/// it; a process would cost a copy of the agent.
pub(crate) fn job_mounts(root: &CStr) -> io::Result<JobMounts> {
    std::thread::scope(|scope| {
        let maker = std::thread::Builder::new()
            .name("mounts".into())
            .spawn_scoped(scope, || make_namespace(root))?;
        let made = maker.join();
        made.unwrap_or_else(|_| Err(io::Error::other("the thread that makes it failed")))
    })
}

fn make_namespace(root: &CStr) -> io::Result<JobMounts> {
    // SAFETY: changes only what this thread has of its own from now on.
    done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    // Before the agent's own /proc is out of sight; the job's may be another.
    let namespace = open("/proc/thread-self/ns/mnt", flags, Mode::empty())?;
    let none = std::ptr::null();
    // SAFETY: every string ends with a NUL and outlives its call.
    unsafe {
        done(libc::chdir(root.as_ptr()))?;
        // What is mounted in here stays in here; what the agent mounts arrives.
        let slaves = libc::MS_REC | libc::MS_SLAVE;
        done(libc::mount(none, root.as_ptr(), none, slaves, none.cast()))?;
        // An initramfs cannot be pivoted away from: there the root is moved over it instead.
        if libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) == 0 {
            // The old root lies over the new one now, and goes.
            done(libc::umount2(c".".as_ptr(), libc::MNT_DETACH))?;
        } else {
            let (from, to) = (c".".as_ptr(), c"/".as_ptr());
            done(libc::mount(from, to, none, libc::MS_MOVE, none.cast()))?;
            done(libc::chroot(from))?;
        }
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open("/", flags, Mode::empty())?;
    Ok(JobMounts { root, namespace })
}

fn done(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(errno())),
    }
}
