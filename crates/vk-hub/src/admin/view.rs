//! What operators are shown, as JSON.

use serde::{Deserialize, Serialize};
use vk_hub_core::{JobStatus, NodeStatus, Principal};
use vk_hub_proto::client::JobView;
use vk_hub_proto::node_session::NodeState;
use vk_hub_proto::{JobId, Name, NodeId, RelayId};

use super::gitlab::PendingRow;
use crate::http::TurnedAway;

/// How the hub is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Where it listens.
    pub addr: String,
    /// Nodes enrolled.
    pub nodes: usize,
    /// Nodes that may be given work now.
    pub nodes_ready: usize,
    /// Relays enrolled.
    pub relays: usize,
    /// Jobs that have not ended.
    pub jobs_unfinished: usize,
    /// Jobs that ended and whose daemon has not settled them.
    pub jobs_unsettled: usize,
    /// What waits for an operator's word.
    pub pending: Vec<PendingRow>,
    /// Connections that were turned away since the hub started (API-68).
    #[serde(default)]
    pub turned_away: TurnedAway,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

/// One node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its ID.
    pub node: NodeId,
    /// Its host, as it says.
    pub hostname: String,
    /// Its pools.
    pub pools: Vec<Name>,
    /// Its labels.
    pub labels: Vec<Name>,
    /// Whether it has a session.
    pub connected: bool,
    /// Its own word for its state.
    pub state: Option<NodeState>,
    /// Whether it may be given work now.
    pub takes_work: bool,
    /// The cap on its placed work.
    pub cap: Option<u32>,
    /// Reservations and unfinished jobs on it.
    pub placed: u64,
    /// Its CPUs.
    pub cpus: Option<u32>,
    /// Memory granted, in MiB.
    pub committed_mib: Option<u64>,
    /// Memory that may be granted, in MiB.
    pub budget_mib: Option<u64>,
    /// Its program's version.
    pub vk: Option<String>,
}

impl NodeRow {
    /// The row of a node enrolled under a hostname.
    #[must_use]
    pub fn of(status: &NodeStatus<'_>, hostname: String) -> NodeRow {
        let admission = status.heartbeat.and_then(|beat| beat.admission);
        let inventory = status.inventory;
        NodeRow {
            node: status.node,
            hostname: inventory.map_or(hostname, |inventory| inventory.hostname.clone()),
            pools: status.pools.iter().cloned().collect(),
            labels: inventory
                .map(|inventory| inventory.labels.clone())
                .unwrap_or_default(),
            connected: status.session.is_some(),
            state: status.report.and_then(|report| report.state),
            takes_work: status.takes_work,
            cap: status.cap,
            placed: status.placed,
            cpus: inventory.map(|inventory| inventory.hardware.cpus),
            committed_mib: admission.map(|admission| admission.committed_mib),
            budget_mib: admission.and_then(|admission| admission.budget_mib),
            vk: inventory.map(|inventory| inventory.versions.vk.clone()),
        }
    }
}

/// One job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobRow {
    /// What its daemon sees.
    pub view: JobView,
    /// Whose it is.
    pub relay: RelayId,
    /// GitLab's number of it.
    pub gitlab_job: u64,
    /// Its name.
    pub name: String,
    /// Its pipeline stage.
    pub stage: String,
    /// Its project's path.
    pub project: String,
    /// Branch or tag.
    pub ref_name: String,
    /// Its image; empty for the node's default.
    pub image: String,
    /// Its GitLab server.
    pub server: String,
    /// Its outcome was delivered.
    pub settled: bool,
}

impl JobRow {
    /// The row of a job.
    #[must_use]
    pub fn of(status: &JobStatus<'_>) -> JobRow {
        let Principal::Relay(relay) = status.owner;
        let summary = status.summary;
        JobRow {
            view: status.view.clone(),
            relay,
            gitlab_job: summary.gitlab_job,
            name: summary.name.clone(),
            stage: summary.stage.clone(),
            project: summary.project_path.clone(),
            ref_name: summary.ref_name.clone(),
            image: summary.image.clone(),
            server: summary.server_url.clone(),
            settled: status.settled,
        }
    }

    /// Its ID.
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.view.id
    }
}
