//! How the daemon stands with the hub: what the session brings, and what it is to say.

use std::sync::Arc;

use tokio::sync::Notify;
use vk_gitlab_core::acquire;
use vk_gitlab_core::job;
use vk_hub_proto::relay_session::{RelayRunner, RunnerBeat, ServerStatus};

use super::daemon::Daemon;
use super::runner::RunnerEdge;
use crate::session::{About, Said, Told};

/// The hub's last word, and what the session says of the daemon.
pub(super) struct Standing {
    about: About,
    changed: Arc<Notify>,
    server: Option<ServerStatus>,
    refused: bool,
    /// The hub knows this relay no more, in its words.
    removed: Option<String>,
}

impl Standing {
    pub(super) const fn new(about: About, changed: Arc<Notify>) -> Standing {
        Standing {
            about,
            changed,
            server: None,
            refused: false,
            removed: None,
        }
    }

    /// What a runner that begins has not heard yet.
    pub(super) fn last_words(&self) -> Vec<acquire::Input> {
        let server = self.server.map(acquire::Input::Server);
        let refused = self.refused.then_some(acquire::Input::RelayRefused);
        server.into_iter().chain(refused).collect()
    }

    /// Something that the session says is new: it says so at once (SESS-18).
    pub(super) fn changed(&self) {
        self.changed.notify_one();
    }
}

impl Daemon {
    /// What the session told.
    pub(super) fn told(&mut self, told: Told) {
        match told {
            Told::Server { status, message } => self.server(status, message),
            Told::RefusedForGood { why, removed } => {
                tracing::error!(
                    why,
                    "the hub refused this daemon for good: no job is asked for any more. Jobs that \
                     run go on as far as the hub answers for them; to take jobs again, stop the \
                     daemon and join anew: vk-gitlab join --replace"
                );
                self.standing.refused = true;
                self.tell_runners(&acquire::Input::RelayRefused);
                if removed {
                    self.standing.removed = Some(why);
                    let jobs: Vec<u64> = self.jobs.keys().copied().collect();
                    jobs.into_iter().for_each(|key| self.tell_removed(key));
                }
            }
            Told::WhatToSay(answer) => {
                // A session that broke meanwhile says nothing.
                let _ = answer.send(self.said());
            }
        }
    }

    fn server(&mut self, status: ServerStatus, message: Option<String>) {
        if self.standing.server.replace(status) == Some(status) {
            return;
        }
        let message = message.unwrap_or_default();
        match status {
            ServerStatus::Approved => {
                tracing::info!(
                    "the hub's operators approved the GitLab server: jobs are asked for"
                );
            }
            status => {
                let status = format!("{status:?}").to_lowercase();
                tracing::warn!(status, "no job is asked for: {message}");
            }
        }
        self.tell_runners(&acquire::Input::Server(status));
    }

    /// Tells a job that the hub knows this relay no more, where that is so.
    pub(super) fn tell_removed(&mut self, key: u64) {
        if let Some(why) = self.standing.removed.clone() {
            self.job_input(key, job::Input::RelayRemoved { why });
        }
    }

    fn tell_runners(&mut self, input: &acquire::Input) {
        for index in 0..self.runners.len() {
            self.acquire_input(index, input.clone());
        }
    }

    /// What the session is to say now.
    fn said(&self) -> Said {
        let now = self.now();
        let runners = || self.runners.iter().filter(|runner| !runner.drained);
        let beat = |runner: &RunnerEdge| -> RunnerBeat {
            runner.acquire.beat(now, runner.config.name.clone())
        };
        let reported = |runner: &RunnerEdge| RelayRunner {
            name: runner.config.name.clone(),
            runner_id: Some(runner.translation.id).filter(|id| *id > 0),
            placement: runner.config.placement.clone(),
            limit: runner.config.limit,
            token_accepted: runner.acquire.token_accepted(),
        };
        let concurrent = self.slots.concurrent();
        let report = self
            .standing
            .about
            .report(concurrent, runners().map(reported).collect());
        Said {
            report,
            runners: runners().map(beat).collect(),
        }
    }
}
