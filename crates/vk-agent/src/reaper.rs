//! Reaps every child that ends: watchers, and what outlived one that was killed. As init, and as a
//! subreaper elsewhere, the agent inherits them.

use std::thread::{Builder, Thread, park_timeout};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};
use vk_guest_proto::Failure;

use crate::context::OrFail;

/// How often a reaper without children looks whether it has inherited any.
const IDLE: Duration = Duration::from_secs(1);

/// The thread that reaps.
#[derive(Debug)]
pub(crate) struct Reaper {
    thread: Thread,
}

impl Reaper {
    pub(crate) fn start() -> Result<Self, Failure> {
        set_child_subreaper(Some(getpid())).or_fail(|| "become a subreaper".into())?;
        let thread = Builder::new()
            .name("reaper".into())
            .spawn(|| {
                loop {
                    if let Err(Errno::CHILD) = wait(WaitOptions::empty()) {
                        park_timeout(IDLE);
                    }
                }
            })
            .or_fail(|| "start the reaper".into())?;
        Ok(Self {
            thread: thread.thread().clone(),
        })
    }

    /// Says that there is a child.
    pub(crate) fn wake(&self) {
        self.thread.unpark();
    }
}
