//! What the loop knows of a runner.

use std::collections::BTreeMap;
use std::sync::Arc;

use gitlab_runner_api::Client;
use serde_json::Value;
use vk_gitlab_core::acquire::{self, Acquire, Session};
use vk_gitlab_core::job::Job;
use vk_gitlab_core::slots::RunnerIndex;
use vk_gitlab_core::state_file::{self, StateFile};
use vk_hub_proto::{JobId, RequestId};
use vk_step::{Core as _, Now, OpenError};

use super::daemon::drawn;
use super::expiry::Expiry;
use super::fetched::Fetched;
use crate::config;
use crate::metrics::Meter;
use crate::state::Stored;
use crate::translate;

/// A runner as configured, ready to be run.
pub struct Prepared {
    /// Its configuration.
    pub config: config::Runner,
    /// Its client of GitLab.
    pub client: Arc<Client>,
    /// The same without a certificate of its own, where it has one: as nodes are (CFG-16).
    pub bare: Option<Arc<Client>>,
    /// What the translation of its jobs needs.
    pub translation: translate::Runner,
    /// The contents of its certificate and key, to see them change.
    pub tls_client: Vec<u8>,
    /// What counts for it.
    pub meter: Meter,
    /// Where its state is.
    pub stored: Stored,
    /// What its state file holds; none where the loop has it in memory.
    pub file: Option<StateFile>,
}

/// Which life of which runner: a runner that changes begins anew, and answers to its old life are
/// nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) index: usize,
    pub(super) life: u32,
}

/// A runner: its core, its client, its file.
pub(super) struct RunnerEdge {
    pub(super) config: config::Runner,
    pub(super) acquire: Acquire,
    pub(super) client: Arc<Client>,
    pub(super) bare: Option<Arc<Client>>,
    pub(super) translation: translate::Runner,
    tls_client: Vec<u8>,
    pub(super) meter: Meter,
    pub(super) stored: Stored,
    pub(super) unknown: BTreeMap<String, Value>,
    /// The last write failed.
    pub(super) store_failed: bool,
    /// When its token expires.
    pub(super) expiry: Expiry,
    /// What the core asked for as it was opened.
    pub(super) opening: Vec<acquire::Effect>,
    pub(super) life: u32,
    /// Asks for no job any more: it was removed, or is to begin anew.
    pub(super) leaving: bool,
    /// Nothing of it is open any more.
    pub(super) drained: bool,
    /// As what it begins anew.
    pub(super) next: Option<Box<Prepared>>,
}

/// One job: its core, and the output bytes its edge holds.
pub(super) struct JobEdge {
    pub(super) runner: usize,
    pub(super) core: Job,
    pub(super) fetched: Fetched,
    /// Its slot was given back.
    pub(super) over: bool,
    /// Bytes of output the hub is known to have.
    pub(super) output_len: u64,
    /// Its record as the state file holds it, until it changes.
    pub(super) rendered: Option<Arc<str>>,
    /// A write of this job has succeeded.
    pub(super) kept: bool,
    /// What it is called, also once its record is gone.
    pub(super) names: Option<Names>,
}

/// What a job is called: one ID from the first line to the last, and one of each side's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub(super) gitlab_job: u64,
    pub(super) request_id: RequestId,
    pub(super) hub_job: Option<JobId>,
}

impl RunnerEdge {
    /// A runner with so many jobs of its own that are not over; its core is fresh, for nothing of it
    /// is kept.
    pub(super) fn open(
        prepared: Prepared,
        unknown: BTreeMap<String, Value>,
        (now, jobs): (Now, u32),
    ) -> Result<RunnerEdge, OpenError> {
        let Prepared {
            config,
            client,
            bare,
            translation,
            tls_client,
            meter,
            stored,
            ..
        } = prepared;
        let (acquire, opening) = Acquire::open(settings(&config, jobs), now, [])?;
        Ok(RunnerEdge {
            config,
            acquire,
            client,
            bare,
            translation,
            tls_client,
            meter,
            stored,
            unknown,
            store_failed: false,
            expiry: Expiry::default(),
            opening,
            life: 0,
            leaving: false,
            drained: false,
            next: None,
        })
    }

    /// Whether it is what is configured now.
    pub(super) fn is(&self, prepared: &Prepared) -> bool {
        self.config == prepared.config
            && self.translation.ca_pem == prepared.translation.ca_pem
            && self.tls_client == prepared.tls_client
    }

    /// When its core wants to be woken: a drained one not even to verify its token.
    pub(super) fn next_deadline(&self) -> Option<Now> {
        self.acquire.next_deadline().filter(|_| !self.drained)
    }
}

impl JobEdge {
    /// Takes down what the job is called, while its record says so.
    pub(super) fn note_names(&mut self) {
        if let Some(record) = self.core.record() {
            self.names = Some(Names {
                gitlab_job: record.taken.gitlab_job,
                request_id: record.taken.request_id,
                hub_job: record.hub_job,
            });
        }
    }

    /// Its record as the state file is to hold it, rendered once for every change; none where the
    /// file is not to hold it.
    pub(super) fn rendered(&mut self) -> Option<Result<Arc<str>, String>> {
        let record = self.core.kept()?;
        if let Some(text) = &self.rendered {
            return Some(Ok(Arc::clone(text)));
        }
        let text = state_file::render_job(record).map_err(|error| error.to_string());
        Some(text.map(|text| {
            let text: Arc<str> = text.into();
            self.rendered = Some(Arc::clone(&text));
            text
        }))
    }
}

/// A runner's place, in the words of the slots.
pub(super) fn runner_index(index: usize) -> RunnerIndex {
    RunnerIndex(u32::try_from(index).unwrap_or(u32::MAX))
}

/// The core's settings.
fn settings(runner: &config::Runner, jobs: u32) -> acquire::Config {
    acquire::Config {
        placement: runner.placement.clone(),
        limit: runner.limit,
        request_concurrency: runner.request_concurrency,
        lease_secs: runner.lease_secs,
        check_interval: runner.check_interval,
        strict_check_interval: runner.strict_check_interval,
        unhealthy_requests_limit: runner.unhealthy_requests_limit,
        unhealthy_interval: runner.unhealthy_interval,
        session: Session::Required,
        jobs,
        seed: drawn(),
    }
}
