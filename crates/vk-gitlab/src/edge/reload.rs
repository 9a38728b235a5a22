//! Settings that change while the daemon runs.
//!
//! A runner that changes asks for no job any more, waits for the request it has open (ADM-13), and
//! begins anew as what it became. Its jobs never notice: they keep their place, and their calls to
//! GitLab go by the job's token.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::oneshot;
use vk_gitlab_core::acquire;

use super::daemon::Daemon;
use super::runner::{Prepared, RunnerEdge, runner_index};
use crate::metrics::Snapshot;

/// What an operator says to a daemon that runs.
pub enum Word {
    /// End: the first lets jobs end, the second ends at once (GL-75).
    Stop,
    /// Go on with these settings.
    Settings(Box<Settings>),
    /// Say how things stand.
    Tell(oneshot::Sender<Snapshot>),
}

/// What can change while the daemon runs.
pub struct Settings {
    /// Jobs and job requests at once, over all runners.
    pub concurrent: u32,
    /// How long running jobs are waited for at shutdown.
    pub shutdown_timeout: Duration,
    /// Seconds a job may wait for a place (ADM-21).
    pub place_within_secs: u32,
    /// All runners; one that is missing asks for no job any more.
    pub runners: Vec<Prepared>,
}

impl Daemon {
    /// Goes on with other settings.
    pub(super) fn settings(&mut self, settings: Settings) {
        if self.is_stopping() {
            tracing::warn!("the daemon ends: other settings are for the next start");
            return;
        }
        self.slots.set_concurrent(settings.concurrent);
        self.shutdown_timeout = settings.shutdown_timeout;
        self.place_within_secs = settings.place_within_secs;
        let names: BTreeSet<String> = settings
            .runners
            .iter()
            .map(|runner| runner.config.name.clone())
            .collect();
        for prepared in settings.runners {
            let name = prepared.config.name.clone();
            match self.runners.iter().position(|one| one.config.name == name) {
                Some(index) => self.change(index, Box::new(prepared)),
                None => self.add(prepared),
            }
        }
        for index in 0..self.runners.len() {
            self.remove_unless_in(index, &names);
        }
        self.slots_changed();
    }

    fn add(&mut self, mut prepared: Prepared) {
        let name = prepared.config.name.clone();
        let file = prepared.file.take().unwrap_or_default();
        match self.open_runner(prepared, file) {
            Ok(index) => {
                let jobs = self.jobs.iter().filter(|(_, job)| job.runner == index);
                let jobs: Vec<u64> = jobs.map(|(key, _)| *key).collect();
                jobs.into_iter().for_each(|key| self.tell_removed(key));
                tracing::info!(runner = name, "runner added");
                self.begin(index);
            }
            Err(error) => {
                tracing::error!(runner = name, %error, "runner not added: its state file does not fit together");
            }
        }
    }

    fn change(&mut self, index: usize, prepared: Box<Prepared>) {
        let Some(runner) = self.runners.get_mut(index) else {
            return;
        };
        if !runner.leaving && runner.is(&prepared) {
            return;
        }
        tracing::info!(runner = runner.config.name, "runner changed");
        runner.next = Some(prepared);
        self.leave(index);
    }

    fn remove_unless_in(&mut self, index: usize, names: &BTreeSet<String>) {
        let Some(runner) = self.runners.get_mut(index) else {
            return;
        };
        if names.contains(&runner.config.name) {
            return;
        }
        runner.next = None;
        if !runner.leaving {
            tracing::info!(
                runner = runner.config.name,
                "runner removed: its jobs run to their end"
            );
            self.leave(index);
        }
    }

    fn leave(&mut self, index: usize) {
        if let Some(runner) = self.runners.get_mut(index) {
            runner.leaving = true;
        }
        if self.runners.get(index).is_some_and(|runner| runner.drained) {
            self.begin_anew(index);
        } else {
            self.acquire_input(index, acquire::Input::Drain);
        }
    }

    /// A drained runner that is to be another one becomes it.
    pub(super) fn begin_anew(&mut self, index: usize) {
        if self.is_stopping() {
            return;
        }
        let jobs = self.jobs_of(index);
        let now = self.now();
        let Some(runner) = self.runners.get_mut(index) else {
            return;
        };
        let Some(next) = runner.next.take() else {
            return;
        };
        let unknown = std::mem::take(&mut runner.unknown);
        let (life, same) = (runner.life, runner.config.token == next.config.token);
        let id = runner.translation.id;
        // A core without records cannot but open.
        let Ok(mut new) = RunnerEdge::open(*next, unknown, (now, jobs)) else {
            return;
        };
        new.life = life.wrapping_add(1);
        new.store_failed = runner.store_failed;
        if same {
            new.translation.id = id;
        }
        *runner = new;
        self.slots.begin(runner_index(index));
        self.begin(index);
        self.slots_changed();
    }
}
