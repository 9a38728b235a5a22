//! What the streams of one agent share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use vk_guest_proto::{Failure, FailureCode, Mode, Purpose, Secret};

use crate::conn::Conn;
use crate::context::fail;
use crate::dial::{Address, Dialer};
use crate::exec::users::Identity;
use crate::exec::{Cgroups, Tree, kill_descendants};
use crate::mounts::Mounts;
use crate::reaper::Reaper;
use crate::root::{JobRoot, Owner};
use crate::usage::{Peak, oom_kills};

/// Most streams at a time, besides control.
const MAX_STREAMS: usize = 64;

/// How an agent is set up, before it dials.
#[derive(Debug)]
pub(crate) struct Setup {
    /// What it is.
    pub mode: Mode,
    /// Where the host listens.
    pub address: Address,
    /// What it proves itself with.
    pub secret: Secret,
    /// Where cgroup v2 is mounted for it, if it is.
    pub cgroups: Option<std::path::PathBuf>,
    /// A directory of its own, outside the job's root, for what it mounts.
    pub state: std::path::PathBuf,
    /// What the job's `/etc/resolv.conf` shall hold; none where it stays the image's.
    pub resolv_conf: Option<String>,
}

/// The agent.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) mode: Mode,
    pub(crate) state: std::path::PathBuf,
    pub(crate) resolv_conf: Option<String>,
    dialer: Dialer,
    cgroups: Option<Cgroups>,
    reaper: Reaper,
    root: RwLock<Option<Arc<JobRoot>>>,
    execs: Mutex<BTreeMap<u32, Arc<Tree>>>,
    streams: AtomicUsize,
    pub(crate) peak: Arc<Peak>,
    /// Whether a command was begun.
    began: AtomicBool,
    pub(crate) mounts: Mounts,
}

impl Agent {
    pub(crate) fn new(setup: Setup) -> Result<Self, Failure> {
        let Setup {
            mode,
            address,
            secret,
            cgroups,
            state,
            resolv_conf,
        } = setup;
        // In a VM commands run in the job's root or not at all; a process may do without one.
        let root = match mode {
            Mode::Vm => None,
            Mode::Process => Some(Arc::new(JobRoot::own()?)),
        };
        let cgroups = cgroups.and_then(|mount| Cgroups::below(&mount).ok());
        Ok(Self {
            mode,
            state,
            resolv_conf,
            dialer: Dialer::new(address, secret),
            cgroups,
            reaper: Reaper::start()?,
            root: RwLock::new(root),
            execs: Mutex::default(),
            streams: AtomicUsize::new(0),
            peak: Arc::default(),
            began: AtomicBool::new(false),
            mounts: Mounts::default(),
        })
    }

    /// Opens a stream to the host.
    pub(crate) fn dial(&self, purpose: Purpose, stream: u32) -> Result<Conn, Failure> {
        self.dialer.dial(purpose, stream)
    }

    /// The job's root.
    pub(crate) fn root(&self) -> Result<Arc<JobRoot>, Failure> {
        let root = self.root.read().unwrap_or_else(PoisonError::into_inner);
        root.clone().ok_or_else(|| {
            Failure::new(
                FailureCode::Invalid,
                "the job's root is not mounted yet: ask MountRoot first",
            )
        })
    }

    /// Puts the job's root in place; from now on everything happens there.
    pub(crate) fn set_root(&self, root: JobRoot) {
        *self.root.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(root));
    }

    pub(crate) fn cgroups(&self) -> Option<&Cgroups> {
        self.cgroups.as_ref()
    }

    /// Says that a process was forked, which may want reaping one day.
    pub(crate) fn child_was_made(&self) {
        self.reaper.wake();
    }

    /// Says that a command begins; how many processes the kernel has killed until now for want of memory.
    /// Before a machine's first command that is none, and no file of figures is made to find that out;
    /// nor is memory sampled before.
    pub(crate) fn begin_command(&self) -> u64 {
        let first = !self.began.swap(true, Ordering::Relaxed);
        if self.mode == Mode::Vm && first {
            Peak::keep_sampling(Arc::clone(&self.peak));
            return 0;
        }
        oom_kills().unwrap_or(0)
    }

    /// Whether a command must change to an identity: not to the one the agent has.
    pub(crate) fn becomes(&self, who: &Identity) -> bool {
        let same = rustix::process::geteuid().as_raw() == who.uid
            && rustix::process::getegid().as_raw() == who.gid;
        // An unprivileged agent is root to its commands whoever it is.
        let as_it_is = same && who.groups.is_empty() || *who == Identity::ROOT;
        match self.mode {
            Mode::Vm => true,
            Mode::Process => !as_it_is,
        }
    }

    /// The owner of what is made for an identity; none where the agent cannot give files away.
    pub(crate) fn owner(&self, who: &Identity) -> Owner {
        self.becomes(who).then_some((who.uid, who.gid))
    }

    fn execs(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Tree>>> {
        self.execs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a stream's command known to signals, until the guard is dropped.
    pub(crate) fn register(&self, stream: u32, tree: &Arc<Tree>) -> Registered<'_> {
        self.execs().insert(stream, Arc::clone(tree));
        Registered {
            agent: self,
            stream,
        }
    }

    /// A stream's command.
    pub(crate) fn exec(&self, stream: u32) -> Result<Arc<Tree>, Failure> {
        self.execs().get(&stream).cloned().ok_or_else(|| {
            Failure::new(
                FailureCode::NotFound,
                format!("no command runs on stream {stream}"),
            )
        })
    }

    /// Kills every command, and what earlier ones left running.
    pub(crate) fn kill_everything(&self) {
        let all: Vec<Arc<Tree>> = self.execs().values().cloned().collect();
        for tree in all {
            tree.kill_all();
        }
        kill_descendants();
    }

    /// Counts a stream in, unless there are too many.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<Admitted, Failure> {
        let admitted = Admitted(Arc::clone(self));
        if self.streams.fetch_add(1, Ordering::SeqCst) >= MAX_STREAMS {
            return fail(
                FailureCode::TooLarge,
                format!("{MAX_STREAMS} streams are open already"),
            );
        }
        Ok(admitted)
    }
}

/// A stream that is counted while it lives.
pub(crate) struct Admitted(pub(crate) Arc<Agent>);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A command that signals can reach while it lives.
pub(crate) struct Registered<'a> {
    agent: &'a Agent,
    stream: u32,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.agent.execs().remove(&self.stream);
    }
}
