//! The few calls that safe libraries do not offer. Everything unsafe in this crate is here.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use rustix::thread::UnshareFlags;
use tokio::io::unix::AsyncFd;

/// The processor's time stamp counter, in ticks since some moment before this call.
///
/// Reads of one core are ordered only against themselves: take several and keep the tightest.
#[cfg(target_arch = "x86_64")]
#[must_use]
pub(crate) fn time_stamp_counter() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 processor, reads no memory and changes nothing but its
    // result registers. A kernel that forbids it (PR_SET_TSC) ends the process with a signal.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Leaves the namespaces named, for new ones. The caller must be single-threaded for a user
/// namespace (the kernel says EINVAL otherwise).
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // A shared descriptor table is what makes unshare unsafe: it must not be unshared here.
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: only CLONE_FILES can break Rust's view of descriptors, and it is never passed.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// Makes a copy of this process, which must have one thread: nothing in the parent, its number; the
/// copy gets none.
pub(crate) fn fork() -> io::Result<Option<rustix::process::Pid>> {
    // SAFETY: with one thread no lock can be held by another that the copy does not have.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(rustix::process::Pid::from_raw(pid)),
    }
}

/// Marks every descriptor from 3 on, but `kept`, to be closed by the next `exec`, whoever opened it.
pub(crate) fn close_descriptors_on_exec(kept: Option<i32>) -> io::Result<()> {
    // SAFETY: close_range with CLOSE_RANGE_CLOEXEC only sets a flag on descriptors; none is closed
    // while this program runs, so no owned descriptor is invalidated.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3_u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    if let Some(kept) = kept {
        // SAFETY: the number is only used for this one call, which says EBADF when nothing is open
        // under it; nothing in this program closes it meanwhile.
        let kept = unsafe { rustix::fd::BorrowedFd::borrow_raw(kept) };
        rustix::io::fcntl_setfd(kept, rustix::io::FdFlags::empty())?;
    }
    Ok(())
}

/// Lets the runtime watch a descriptor.
pub(crate) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd owns its descriptor and gives the same one for as long as it lives.
    unsafe { AsyncFd::register(descriptor) }.map_err(io::Error::from)
}
