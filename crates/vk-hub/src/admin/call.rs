//! What an operator may ask.

use serde::{Deserialize, Serialize};
use vk_hub_proto::client::CancelMode;
use vk_hub_proto::{JobId, Name, NodeId, RelayId};

use super::gitlab::Target;

/// The only version of the socket's language.
pub(crate) const VERSION: u32 = 1;

/// One request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// The language's version.
    pub v: u32,
    /// What is asked.
    pub call: Call,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Call {
    /// How the hub is.
    Status,
    /// An enrolment token.
    TokenCreate {
        /// `node` or `gitlab`.
        kind: Kind,
        /// Seconds it lives.
        lives_secs: u64,
    },
    /// All nodes.
    Nodes,
    /// The pools of a node.
    NodesPools {
        /// Which node.
        node: NodeId,
        /// Its pools, all of them.
        pools: Vec<Name>,
    },
    /// The cap on a node's placed work.
    NodesCeiling {
        /// Which node.
        node: NodeId,
        /// The cap; none leaves it to the node.
        ceiling: Option<u32>,
    },
    /// A node is no longer part of the fleet.
    NodesRemove {
        /// Which.
        node: NodeId,
    },
    /// All relays.
    Relays,
    /// A relay is no longer let in.
    RelaysRemove {
        /// Which.
        relay: RelayId,
    },
    /// All GitLab servers and projects.
    Gitlab,
    /// A server's or project's jobs are taken or refused from now on (SESS-26).
    GitlabDecide {
        /// Which.
        target: Target,
        /// Whether they are taken.
        approved: bool,
        /// Whether all of a server's projects are; none leaves that as it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        all_projects: Option<bool>,
    },
    /// The newest lines of the audit log, at most so many, oldest first.
    Audit {
        /// How many.
        most: u32,
    },
    /// All jobs, newest first.
    Jobs,
    /// One job.
    JobsShow {
        /// Which.
        job: JobId,
    },
    /// Stop a job.
    JobsCancel {
        /// Which.
        job: JobId,
        /// How hard.
        mode: CancelMode,
    },
    /// Drop a finished job's output, whether or not its daemon asked for that (API-71).
    JobsSettle {
        /// Which.
        job: JobId,
    },
}

/// What a token is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A host that runs jobs.
    #[default]
    Node,
    /// A `vk-gitlab`.
    #[value(name = "gitlab")]
    #[serde(rename = "gitlab")]
    GitLab,
}
