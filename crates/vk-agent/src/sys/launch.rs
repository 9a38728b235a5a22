//! A command and its watcher.
//!
//! The agent forks a watcher, the watcher forks the command. The watcher is a subreaper: whatever
//! the command starts stays below it, daemons that fork twice too, so that "everything this command
//! started" is its descendants, exactly. It tells the agent over a pipe how the command's own
//! process ended, and stays until none is left.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::after_fork::{
    block_signals, close_all_but, errno, exit, keep_standard_descriptors_only, read_record,
    reset_signals, write_record,
};

/// Everything the children need, made before the fork.
pub(crate) struct Launch<'a> {
    /// The programs to try, in order.
    pub(crate) programs: &'a [CString],
    pub(crate) argv: &'a [CString],
    pub(crate) env: &'a [CString],
    pub(crate) cwd: &'a CStr,
    pub(crate) umask: u32,
    /// Who to become; `None` to stay who the agent is.
    pub(crate) identity: Option<(u32, u32, &'a [u32])>,
    /// Whether the agent is spared when memory runs out, which the command must not inherit.
    pub(crate) not_spared: bool,
    /// The mount namespace of the job.
    pub(crate) mounts: Option<BorrowedFd<'a>>,
    /// `cgroup.procs` of the command's own cgroup.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    pub(crate) stdin: BorrowedFd<'a>,
    pub(crate) stdout: BorrowedFd<'a>,
    pub(crate) stderr: BorrowedFd<'a>,
}

/// A watcher that was started.
pub(crate) struct Launched {
    pub(crate) watcher: Pid,
    /// [`Record`]s come here.
    pub(crate) records: OwnedFd,
}

/// What the watcher tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The command runs; its process.
    Started(i32),
    /// It does not: the step that failed, and the error number.
    Failed(&'static str, i32),
    /// It ended: the wait status, CPU milliseconds, largest resident set in KiB.
    Ended(i32, u64, u64),
}

const RECORD_LEN: usize = 32;
const STARTED: u32 = 1;
const FAILED: u32 = 2;
const ENDED: u32 = 3;

/// What the command's process does before it execs, for messages.
const STEPS: [&str; 9] = [
    "fork the command",
    "make a session",
    "enter the command's cgroup",
    "enter the job's mounts",
    "enter the working directory",
    "set up standard input and output",
    "set the groups",
    "set the user",
    "execute the program",
];

impl Record {
    fn bytes(tag: u32, a: i32, b: i32, c: u64, d: u64) -> [u8; RECORD_LEN] {
        let mut out = [0; RECORD_LEN];
        let fields = tag
            .to_le_bytes()
            .into_iter()
            .chain(a.to_le_bytes())
            .chain(b.to_le_bytes());
        let fields = fields
            .chain([0; 4])
            .chain(c.to_le_bytes())
            .chain(d.to_le_bytes());
        out.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        out
    }

    /// Reads one; the watcher writes each whole. `None` when the watcher is gone.
    pub(crate) fn read(from: &OwnedFd) -> Option<Self> {
        let mut raw = [0; RECORD_LEN];
        let n = rustix::io::retry_on_intr(|| rustix::io::read(from, &mut raw)).ok()?;
        if n != RECORD_LEN {
            return None;
        }
        let (tag, rest) = raw.split_first_chunk::<4>()?;
        let (a, rest) = rest.split_first_chunk::<4>()?;
        let (b, rest) = rest.split_first_chunk::<4>()?;
        let (_, rest) = rest.split_first_chunk::<4>()?;
        let (c, rest) = rest.split_first_chunk::<8>()?;
        let (d, _) = rest.split_first_chunk::<8>()?;
        let (a, b) = (i32::from_le_bytes(*a), i32::from_le_bytes(*b));
        match u32::from_le_bytes(*tag) {
            STARTED => Some(Self::Started(a)),
            FAILED => {
                let step = usize::try_from(a).ok().and_then(|a| STEPS.get(a));
                Some(Self::Failed(step.unwrap_or(&"start the command"), b))
            }
            ENDED => Some(Self::Ended(
                a,
                u64::from_le_bytes(*c),
                u64::from_le_bytes(*d),
            )),
            _ => None,
        }
    }
}

/// The pointers `execve` wants, ended by a null.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

/// Starts the command under a watcher.
pub(crate) fn launch(plan: &Launch<'_>) -> io::Result<Launched> {
    let (records, tell) = pipe_with(PipeFlags::CLOEXEC)?;
    // Filled by the command's process if it cannot exec; closed by the exec if it can.
    let (failed_read, failed_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let argv = pointers(plan.argv);
    let env = pointers(plan.env);
    // SAFETY: the child runs `watch`, which calls only what is safe after a fork with threads and
    // never returns.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let failed = (failed_read.as_raw_fd(), failed_write.as_raw_fd());
            watch(plan, &argv, &env, tell.as_raw_fd(), failed)
        }
        _ => {
            let watcher = Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork gave no pid"))?;
            Ok(Launched { watcher, records })
        }
    }
}

/// The watcher: starts the command, reaps whatever ends below it, and says how the command ended.
fn watch(
    plan: &Launch<'_>,
    argv: &[*const c_char],
    env: &[*const c_char],
    tell: RawFd,
    (failed_read, failed_write): (RawFd, RawFd),
) -> ! {
    block_signals();
    // SAFETY: plain calls with constants and a static string.
    let leader = unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_NAME, c"vk-watch".as_ptr(), 0, 0, 0);
        libc::fork()
    };
    match leader {
        -1 => {
            write_record(tell, &Record::bytes(FAILED, 0, errno(), 0, 0));
            exit(1);
        }
        0 => {
            let (step, errno) = become_command(plan, argv, env);
            let mut raw = [0; 8];
            let both = step.to_le_bytes().into_iter().chain(errno.to_le_bytes());
            raw.iter_mut().zip(both).for_each(|(to, from)| *to = from);
            write_record(failed_write, &raw);
            exit(127);
        }
        _ => {}
    }
    // SAFETY: closes a descriptor of this process alone, so that the read below ends.
    unsafe { libc::close(failed_write) };
    let mut raw = [0; 8];
    if read_record(failed_read, &mut raw) == raw.len() {
        let [a, b, c, d, e, f, g, h] = raw;
        let (step, errno) = (
            i32::from_le_bytes([a, b, c, d]),
            i32::from_le_bytes([e, f, g, h]),
        );
        write_record(tell, &Record::bytes(FAILED, step, errno, 0, 0));
    } else {
        write_record(tell, &Record::bytes(STARTED, leader, 0, 0, 0));
    }
    // Above all the pipes of output: what this process holds open never ends.
    close_all_but(tell);
    reap(leader, tell)
}

/// Reaps until nothing is left below.
fn reap(leader: c_int, tell: RawFd) -> ! {
    loop {
        let mut status = 0;
        // SAFETY: all-zero bytes are a valid `rusage`, a struct of integers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to values of their type.
        let pid = unsafe { libc::wait4(-1, &raw mut status, 0, &raw mut usage) };
        if pid == leader {
            let cpu = millis(usage.ru_utime).saturating_add(millis(usage.ru_stime));
            let rss = u64::try_from(usage.ru_maxrss).unwrap_or(0);
            write_record(tell, &Record::bytes(ENDED, status, 0, cpu, rss));
        } else if pid == -1 && errno() != libc::EINTR {
            exit(0);
        }
    }
}

fn millis(time: libc::timeval) -> u64 {
    let (s, us) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec));
    s.unwrap_or(0)
        .saturating_mul(1000)
        .saturating_add(us.unwrap_or(0) / 1000)
}

/// The command's process up to its exec; gives the step that failed, and why.
fn become_command(
    plan: &Launch<'_>,
    argv: &[*const c_char],
    env: &[*const c_char],
) -> (i32, c_int) {
    // SAFETY: every call gets descriptors that are open, strings and arrays that end as they must
    // and live until the exec, and nothing else.
    unsafe {
        if libc::setsid() == -1 {
            return (1, errno());
        }
        if let Some(cgroup) = plan.cgroup
            && libc::write(cgroup.as_raw_fd(), c"0".as_ptr().cast(), 1) != 1
        {
            return (2, errno());
        }
        if plan.not_spared {
            let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
            libc::write(score, c"0".as_ptr().cast(), 1);
            libc::close(score);
        }
        if let Some(mounts) = plan.mounts
            && libc::setns(mounts.as_raw_fd(), libc::CLONE_NEWNS) != 0
        {
            return (3, errno());
        }
        if libc::chdir(plan.cwd.as_ptr()) != 0 {
            return (4, errno());
        }
        libc::umask(plan.umask);
        for (to, from) in [(0, plan.stdin), (1, plan.stdout), (2, plan.stderr)] {
            // The agent keeps 0 to 2 open itself, so none of these is one of them.
            if libc::dup2(from.as_raw_fd(), to) == -1 {
                return (5, errno());
            }
        }
        if let Some((uid, gid, groups)) = plan.identity {
            if libc::setgroups(groups.len(), groups.as_ptr()) != 0
                || libc::setresgid(gid, gid, gid) != 0
            {
                return (6, errno());
            }
            if libc::setresuid(uid, uid, uid) != 0 {
                return (7, errno());
            }
        }
        keep_standard_descriptors_only();
        reset_signals();
        // As a shell looks along the PATH: what is there and may not be executed is remembered,
        // what is not there is passed over.
        let mut why = libc::ENOENT;
        for program in plan.programs {
            libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr());
            match errno() {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => why = libc::EACCES,
                other => return (8, other),
            }
        }
        (8, why)
    }
}
