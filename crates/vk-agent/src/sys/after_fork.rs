//! What a child made by fork may call before it execs or exits. The agent has threads: another may
//! have held the allocator's lock when this one forked, so nothing here allocates, locks or panics.

use std::ffi::c_int;

use rustix::fd::RawFd;

/// The error number of the last call.
pub(super) fn errno() -> c_int {
    // SAFETY: the pointer is to this thread's own error number.
    unsafe { *libc::__errno_location() }
}

/// Ends the child at once.
pub(super) fn exit(code: c_int) -> ! {
    // SAFETY: ends the process; runs no handlers.
    unsafe { libc::_exit(code) }
}

/// Writes all of a small record; whoever does not read it any more does not want it.
pub(super) fn write_record(fd: RawFd, bytes: &[u8]) {
    loop {
        // SAFETY: the pointer and the length are those of a slice.
        let n = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        if n >= 0 || errno() != libc::EINTR {
            return;
        }
    }
}

/// Reads at most a record's bytes; 0 at the end.
pub(super) fn read_record(fd: RawFd, bytes: &mut [u8]) -> usize {
    loop {
        // SAFETY: the pointer and the length are those of a slice.
        let n = unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) };
        match usize::try_from(n) {
            Ok(n) => return n,
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return 0,
        }
    }
}

/// Closes every descriptor but one.
pub(super) fn close_all_but(kept: RawFd) {
    let Ok(kept) = u32::try_from(kept) else {
        return;
    };
    // SAFETY: closes descriptors of this child, none of which is used afterwards.
    unsafe {
        if kept > 0 {
            libc::syscall(libc::SYS_close_range, 0_u32, kept - 1, 0_u32);
        }
        libc::syscall(libc::SYS_close_range, kept + 1, u32::MAX, 0_u32);
    }
}

/// Has every descriptor above the standard ones closed by the exec, those too that the agent's own
/// starter left open.
pub(super) fn keep_standard_descriptors_only() {
    // SAFETY: sets a flag on descriptors of this child.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3_u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
}

/// Gives every signal its default action and unblocks all, as a program may expect at its start.
pub(super) fn reset_signals() {
    // The kernel's own call: the C library keeps two signals to itself, and whoever started the
    // agent may have had them ignored. All-zero bytes are the default action, in any layout.
    let default = [0_u64; 8];
    let none = std::ptr::null_mut::<u64>();
    for signal in 1..=64 {
        // SAFETY: the action is read from a larger array of zeros, nothing is written; for signals
        // that have no action to set the call fails harmlessly.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                none,
                8_usize,
            )
        };
    }
    mask(libc::SIG_SETMASK, false);
}

/// Blocks all signals.
pub(super) fn block_signals() {
    mask(libc::SIG_SETMASK, true);
}

fn mask(how: c_int, full: bool) {
    // SAFETY: the set is initialised by `sigfillset` or `sigemptyset` before it is used.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        if full {
            libc::sigfillset(set.as_mut_ptr());
        } else {
            libc::sigemptyset(set.as_mut_ptr());
        }
        libc::sigprocmask(how, set.as_ptr(), std::ptr::null_mut());
    }
}
