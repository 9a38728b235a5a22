//! The node's session: `GET /v1/node`, a WebSocket of JSON text frames, tag `type`.

use serde::{Deserialize, Serialize};

use crate::dispatch::{HubJobMessage, NodeJobMessage};
use crate::hex::Hex;
use crate::{CommandId, Incarnation, NodeId};

mod bounds;
mod report;
mod steering;
mod version;

pub use report::{
    Admission, Check, Concurrency, Drain, Hardware, Heartbeat, Inventory, MemoryNode, NodeState,
    Placed, Report, RunnerInfo, RunnerMode, RunnerState, StorageFree, StorageInfo, StorageRole,
    StorageSpeed, Versions, Workload, WorkloadKind,
};
pub use steering::{Acquisition, CommandOp, CommandOutcome, DesiredState};
pub use version::{JOBS, PROTOCOL, STEERING, VersionRange};

/// From the node to the hub.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NodeMessage {
    /// The first message: who is here, and what it speaks.
    Hello {
        /// The versions it speaks.
        versions: VersionRange,
        /// Who.
        node_id: NodeId,
        /// This life of the daemon.
        incarnation: Incarnation,
        /// The program's version.
        vk_version: String,
    },
    /// The answer to the challenge.
    Auth {
        /// Ed25519 by the node's key, over [`crate::signed::session_auth`].
        signature: Hex<64>,
    },
    /// What the host is; sent when the session opens and when it changed.
    Inventory(Box<Inventory>),
    /// A sign of life, with what changes all the time.
    Heartbeat(Heartbeat),
    /// What the node does and in which state it is.
    Report(Box<Report>),
    /// The outcome of a command.
    Ack {
        /// Which.
        id: CommandId,
        /// What came of it.
        outcome: CommandOutcome,
    },
    /// A job message.
    Job(NodeJobMessage),
    /// A type this version does not know; ignored.
    #[serde(other)]
    Other,
}

/// From the hub to the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HubMessage {
    /// What to sign, and the version chosen.
    Challenge {
        /// The highest version both speak.
        version: u32,
        /// The versions the hub speaks.
        versions: VersionRange,
        /// Drawn for this session.
        nonce: Hex<32>,
    },
    /// The node is who it says.
    Welcome {
        /// Seconds between heartbeats; 0 reads as 1, the node clamps to 1..300.
        heartbeat_secs: u32,
    },
    /// The session ends.
    Refused {
        /// Why, for the program.
        code: RefusedCode,
        /// Why, for people.
        reason: String,
    },
    /// What the operator wants of the node (version 2).
    Desired(DesiredState),
    /// A steering command (version 2).
    Command {
        /// Its ID; repeated commands are answered from the node's journal.
        id: CommandId,
        /// Unix seconds after which it is not begun.
        expires_at: u64,
        /// What to do.
        op: CommandOp,
    },
    /// The outcome of a command is stored.
    Recorded {
        /// Which.
        id: CommandId,
        /// The outcome as it was acked.
        outcome: CommandOutcome,
    },
    /// A job message (version 3).
    Job(HubJobMessage),
    /// A type this version does not know; ignored.
    #[serde(other)]
    Other,
}

/// Why a session was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedCode {
    /// The hub does not know the ID.
    NotEnrolled,
    /// The signature does not fit the pinned key.
    BadSignature,
    /// An operator removed it.
    Revoked,
    /// No version in common.
    Version,
    /// A newer session of the same ID took over.
    Superseded,
    /// A message made no sense.
    Protocol,
    /// A fault of the hub's own.
    Internal,
    /// A code this version does not know.
    #[serde(other)]
    Other,
}

impl RefusedCode {
    /// Whether dialling again is pointless (SESS-21).
    #[must_use]
    pub const fn is_for_good(self) -> bool {
        matches!(
            self,
            RefusedCode::NotEnrolled | RefusedCode::BadSignature | RefusedCode::Revoked
        )
    }
}
