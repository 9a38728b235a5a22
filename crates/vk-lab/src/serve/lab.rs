//! What all connections share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, watch};

use super::clock::Clock;
use super::fault::Faults;
use super::projects::Git;
use crate::gitlab::Gitlab;

/// Git processes that run at once.
const MAX_GIT: usize = 16;

/// GitLab's mind and what stands around it.
#[derive(Debug)]
pub(crate) struct Lab {
    gitlab: Mutex<Gitlab>,
    pub(super) clock: Clock,
    pub(super) faults: Faults,
    /// Private directory: bare repositories and artifacts.
    pub(super) state: PathBuf,
    pub(crate) git: Git,
    pub(super) git_slots: Arc<Semaphore>,
    ticks: watch::Sender<u64>,
    changes: watch::Sender<u64>,
    stopping: AtomicBool,
}

impl Lab {
    pub(super) fn new(gitlab: Gitlab, git: Git, state: PathBuf) -> Self {
        Self {
            gitlab: Mutex::new(gitlab),
            clock: Clock::default(),
            faults: Faults::default(),
            state,
            git,
            git_slots: Arc::new(Semaphore::new(MAX_GIT)),
            ticks: watch::Sender::new(0),
            changes: watch::Sender::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// One step of GitLab's mind; whoever waits for what it changed is woken.
    pub(crate) fn with<T>(&self, step: impl FnOnce(&mut Gitlab, u64) -> T) -> T {
        let now = self.clock.now();
        // A panic inside a step is a bug of one call; the others must still be answered.
        let mut gitlab = self.gitlab.lock().unwrap_or_else(PoisonError::into_inner);
        let result = step(&mut gitlab, now);
        let ticks = gitlab.ticks();
        drop(gitlab);
        self.ticks
            .send_if_modified(|seen| std::mem::replace(seen, ticks) != ticks);
        self.changes.send_modify(|count| *count += 1);
        result
    }

    /// Someone looks at a job's log; wakes nobody, since nothing that can be seen changes.
    pub(crate) fn watch(&self, job: u64) {
        let now = self.clock.now();
        let mut gitlab = self.gitlab.lock().unwrap_or_else(PoisonError::into_inner);
        // A job that is not there is found out by the look that follows.
        let _ = gitlab.watch(job, now);
    }

    /// Only a look.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Gitlab, u64) -> T) -> T {
        let now = self.clock.now();
        look(
            &self.gitlab.lock().unwrap_or_else(PoisonError::into_inner),
            now,
        )
    }

    /// Wakes when a queue value changes.
    pub(crate) fn on_tick(&self) -> watch::Receiver<u64> {
        self.ticks.subscribe()
    }

    /// Wakes when anything changes.
    pub(crate) fn on_change(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}
