//! What the loop knows of a runner.

use std::collections::BTreeMap;
use std::sync::Arc;

use gitlab_runner_api::Client;
use serde_json::Value;
use vk_gitlab_core::acquire::{self, Acquire};
use vk_gitlab_core::job::{Job, JobRecord};
use vk_hub_proto::RelayId;

use crate::config;
use crate::state::Stored;
use crate::translate;

/// A runner: its core, its client, its file.
pub struct RunnerEdge {
    pub(super) config: config::Runner,
    pub(super) acquire: Acquire,
    pub(super) client: Arc<Client>,
    pub(super) translation: translate::Runner,
    pub(super) stored: Stored,
    pub(super) unknown: BTreeMap<String, Value>,
    /// The last write failed.
    pub(super) store_failed: bool,
    /// What the core asked for as it was opened.
    pub(super) opening: Vec<acquire::Effect>,
}

/// One job: its core, and the output bytes its edge holds.
pub(super) struct JobEdge {
    pub(super) runner: usize,
    pub(super) core: Job,
    /// From which offset, and the bytes.
    pub(super) fetched: (u64, Arc<[u8]>),
    /// A write of this job has succeeded.
    pub(super) kept: bool,
}

impl RunnerEdge {
    /// A runner around its core, as it was opened.
    pub(crate) fn new(
        config: config::Runner,
        (acquire, opening): (Acquire, Vec<acquire::Effect>),
        client: Arc<Client>,
        translation: translate::Runner,
        (stored, unknown): (Stored, BTreeMap<String, Value>),
    ) -> RunnerEdge {
        RunnerEdge {
            config,
            acquire,
            client,
            translation,
            stored,
            unknown,
            store_failed: false,
            opening,
        }
    }

    /// The contents of the state file for these jobs.
    pub(super) fn render<'a>(
        &self,
        relay: RelayId,
        jobs: impl Iterator<Item = &'a JobRecord>,
    ) -> Result<String, String> {
        vk_gitlab_core::state_file::render(relay, jobs, &self.unknown)
            .map_err(|error| error.to_string())
    }
}
