//! What clients and operators ask, and who they are.

use serde::{Deserialize, Serialize};
use vk_hub_proto::client::{
    CancelMode, CapacityRequest, JobSubmission, RenewRequest, ReservationRequest,
};
use vk_hub_proto::hex::Hex;
use vk_hub_proto::node_session::Acquisition;
use vk_hub_proto::{JobId, Name, NodeId, RelayId, RequestId, ReservationId};

use crate::{ProjectNumber, ServerNumber};

/// SHA-256 of a create's body, serialized again after parsing (API-58).
pub type Digest = Hex<32>;

/// A request that waits for its answer, by the edge's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestHandle(pub u64);

/// A node's session, by the edge's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionHandle(pub u64);

/// Who asks. Jobs and reservations belong to whom made them; to others they do not exist
/// (STATE-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Principal {
    /// An enrolled `vk-gitlab`.
    Relay(RelayId),
}

/// What a client asks. Waits beyond 60 s are cut to that (API-54).
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `POST /v1/capacity`.
    Capacity(CapacityRequest),
    /// `POST /v1/reservations`.
    Reserve {
        /// The body.
        request: ReservationRequest,
        /// Of the body.
        digest: Digest,
        /// Freshly drawn. Each offer of this request gets an ID counted on from it.
        fresh: ReservationId,
    },
    /// `POST /v1/reservations/<id>/renew`.
    Renew {
        /// Which.
        reservation: ReservationId,
        /// The body.
        request: RenewRequest,
    },
    /// `DELETE /v1/reservations/<id>`.
    Release {
        /// Which.
        reservation: ReservationId,
    },
    /// `POST /v1/jobs`.
    Submit {
        /// The body.
        submission: Box<JobSubmission>,
        /// Of the body.
        digest: Digest,
        /// Bytes of the spec as serialized (API-31).
        spec_bytes: usize,
        /// Freshly drawn.
        fresh: JobId,
    },
    /// `GET /v1/jobs/<id>`.
    View {
        /// Which.
        job: JobId,
        /// Answer once the revision has passed this one.
        after: Option<u64>,
        /// Hold the request this long at most.
        wait_secs: u32,
    },
    /// The same for who carries the job on and does not watch it (`turns=1`): held until a node has
    /// accepted the job, its cancel has changed or it has ended, whatever it passes through meanwhile.
    Turn {
        /// Which.
        job: JobId,
        /// Answer once there was a turn past this revision.
        after: Option<u64>,
        /// Hold the request this long at most.
        wait_secs: u32,
    },
    /// `GET /v1/jobs/<id>/output`.
    Output {
        /// Which job's.
        job: JobId,
        /// From here on.
        offset: u64,
        /// Hold the request this long at most.
        wait_secs: u32,
    },
    /// `POST /v1/jobs/<id>/cancel`.
    Cancel {
        /// Which.
        job: JobId,
        /// How hard.
        mode: CancelMode,
    },
    /// `POST /v1/jobs/<id>/settle`.
    Settle {
        /// Which.
        job: JobId,
    },
}

/// What an operator asks. All of these can be repeated without harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorRequest {
    /// A node was enrolled; one that is known already keeps its pools.
    AddNode {
        /// Its ID.
        node: NodeId,
        /// The pools it begins in.
        pools: Vec<Name>,
    },
    /// A node is no longer part of the fleet: its session closes and its jobs are lost.
    RemoveNode {
        /// Which.
        node: NodeId,
    },
    /// `vk-hub nodes pools` (PLACE-02).
    SetPools {
        /// Which node.
        node: NodeId,
        /// Its pools, all of them.
        pools: Vec<Name>,
    },
    /// `vk-hub nodes ceiling` (PLACE-08); 0 is refused: stop the node instead.
    SetCeiling {
        /// Which node.
        node: NodeId,
        /// At most so much placed work; none leaves it to the node.
        ceiling: Option<u32>,
    },
    /// Whether a node takes new work.
    SetAcquisition {
        /// Which node.
        node: NodeId,
        /// Whether.
        acquisition: Acquisition,
    },
    /// Cancel anybody's job.
    CancelJob {
        /// Which.
        job: JobId,
        /// How hard.
        mode: CancelMode,
    },
    /// Settle anybody's finished job (API-71).
    SettleJob {
        /// Which.
        job: JobId,
    },
    /// A relay is no longer let in: its session closes for good.
    RemoveRelay {
        /// Which.
        relay: RelayId,
    },
    /// `vk-hub gitlab approve|reject` of a server (SESS-26).
    DecideServer {
        /// Which.
        server: ServerNumber,
        /// Whether its jobs are taken.
        approved: bool,
        /// Whether all of its projects are; none leaves that as it is.
        all_projects: Option<bool>,
    },
    /// `vk-hub gitlab approve|reject` of a project (SESS-26).
    DecideProject {
        /// Which.
        project: ProjectNumber,
        /// Whether its jobs are taken.
        approved: bool,
    },
}

/// Who waits for an answer, and who that is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) to: RequestHandle,
    pub(crate) by: Principal,
}

/// A create's request, by whom and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKey {
    pub(crate) owner: Principal,
    pub(crate) request: RequestId,
}
