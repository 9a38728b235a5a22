//! A mount namespace whose root is the job's root.

use std::ffi::{CStr, c_int};
use std::io;

use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::after_fork::{block_signals, close_all_but, errno, exit, read_record, write_record};

/// A process that lives in the namespace until it is dropped; the namespace itself lives as long as
/// anyone holds a descriptor of it.
pub(crate) struct Holder {
    pub(crate) pid: Pid,
    _release: OwnedFd,
}

/// Makes the namespace: a copy of the agent's mounts, the job's root moved onto the root, and what
/// the agent mounts below it later comes along, but nothing goes back.
pub(crate) fn hold_mounts(root: &CStr) -> io::Result<Holder> {
    let (answer, tell) = pipe_with(PipeFlags::CLOEXEC)?;
    let (held, release) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: the child runs `hold`, which calls only what is safe after a fork with threads and
    // never returns.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(io::Error::last_os_error()),
        0 => hold(root, tell.as_raw_fd(), held.as_raw_fd()),
        _ => drop(tell),
    }
    let mut raw = [0; 4];
    let n = rustix::io::retry_on_intr(|| rustix::io::read(&answer, &mut raw))?;
    match i32::from_le_bytes(raw) {
        0 if n == raw.len() => {
            let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork gave no pid"))?;
            Ok(Holder {
                pid,
                _release: release,
            })
        }
        0 => Err(io::Error::other(
            "the process that holds the job's mounts ended",
        )),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn hold(root: &CStr, tell: RawFd, held: RawFd) -> ! {
    block_signals();
    let result = make_namespace(root);
    write_record(tell, &result.to_le_bytes());
    if result == 0 {
        close_all_but(held);
        read_record(held, &mut [0]);
    }
    exit(0)
}

/// 0, or the error number.
fn make_namespace(root: &CStr) -> c_int {
    let none = std::ptr::null();
    // SAFETY: every string ends with a NUL and outlives its call.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) != 0
            || libc::chdir(root.as_ptr()) != 0
            // What is mounted in here stays in here; what the agent mounts arrives.
            || libc::mount(none, root.as_ptr(), none, libc::MS_REC | libc::MS_SLAVE, none.cast())
                != 0
        {
            return errno();
        }
        // An initramfs cannot be pivoted away from: there the root is moved over it instead.
        if libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) == 0 {
            // The old root lies over the new one now, and goes.
            if libc::umount2(c".".as_ptr(), libc::MNT_DETACH) != 0 {
                return errno();
            }
        } else if libc::mount(
            c".".as_ptr(),
            c"/".as_ptr(),
            none,
            libc::MS_MOVE,
            none.cast(),
        ) != 0
            || libc::chroot(c".".as_ptr()) != 0
        {
            return errno();
        }
        if libc::chdir(c"/".as_ptr()) != 0 {
            errno()
        } else {
            0
        }
    }
}
