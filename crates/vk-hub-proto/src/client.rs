//! The hub's client API: bodies and answers (`/v1/…`, HTTP/1.1, JSON).

use serde::{Deserialize, Serialize};

use crate::job::{JobResult, JobSpec};
use crate::{JobId, Name, NodeId, RequestId, ReservationId};

mod error;
mod validate;
pub use error::{ClientError, ErrorCode};
pub use validate::Invalid;

/// What a job needs of a node, or a reservation sets aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Memory in MiB, at least 1.
    pub mem_mib: u64,
    /// Virtual CPUs, at least 1; they weigh in load, not in room (PLACE-40).
    pub cpus: u32,
    /// Disk in bytes, may be 0.
    pub disk_bytes: u64,
}

/// Where work may go (API-53).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The pool whose nodes are candidates.
    pub pool: Name,
    /// Labels a candidate must carry, all of them; at most [`crate::limit::LABELS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Name>,
    /// What it takes.
    pub envelope: Envelope,
}

/// `POST /v1/capacity` (API-17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityRequest {
    /// Room for what.
    pub placement: Placement,
    /// Answer once the revision has passed this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Hold the request this long at most, clamped to [`crate::limit::WAIT_SECS`].
    #[serde(default)]
    pub wait_secs: u32,
}

/// How much room there is (API-17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Rises with every change, over hub restarts too (API-65).
    pub revision: u64,
    /// Envelopes, not nodes (API-18).
    pub fits: u32,
    /// No node of the fleet is in the pool, ready or not: waiting alone will not help. Absent where
    /// one is, and from a hub that does not say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_nodes: bool,
}

/// `POST /v1/reservations` (API-19).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationRequest {
    /// Makes the request idempotent.
    pub request_id: RequestId,
    /// What to reserve.
    pub placement: Placement,
    /// 1 to [`crate::limit::LEASE_SECS`].
    pub lease_secs: u32,
    /// How long nodes may be asked, clamped to [`crate::limit::WAIT_SECS`].
    #[serde(default)]
    pub wait_secs: u32,
}

/// A reservation as its node granted it; also the answer to a renewal (API-19, API-23).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationGrant {
    /// Its ID.
    pub reservation: ReservationId,
    /// The node that holds it.
    pub node: NodeId,
    /// What is set aside.
    pub envelope: Envelope,
    /// How long it lasts from the node's acceptance on.
    pub lease_secs: u32,
}

/// `POST /v1/reservations/<id>/renew`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewRequest {
    /// 1 to [`crate::limit::LEASE_SECS`], from now on.
    pub lease_secs: u32,
}

/// `POST /v1/jobs` (API-26).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSubmission {
    /// Makes the request idempotent.
    pub request_id: RequestId,
    /// Where to place the job should its reservation be gone.
    pub placement: Placement,
    /// The reservation to start on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationId>,
    /// How long the job may wait for a place, at most [`crate::limit::PLACE_WITHIN_SECS`].
    pub place_within_secs: u32,
    /// The job.
    pub spec: JobSpec,
}

/// A job as the hub sees it (API-32, API-72).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// The hub's ID for the job.
    pub id: JobId,
    /// Moves with every change but the output's length (API-35).
    pub revision: u64,
    /// How far the job is.
    pub state: JobState,
    /// The node it was sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The last stage that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Output bytes stored so far.
    pub output_len: u64,
    /// The cancel in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelMode>,
    /// Present once finished (API-34).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
}

/// How far a job is (API-33).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for a node.
    Queued,
    /// Sent to a node that has not answered.
    Starting,
    /// Accepted by its node.
    Running,
    /// Over; `result` says how.
    Finished,
    /// A state this version does not know.
    #[serde(other)]
    Other,
}

/// How hard to stop a job (API-41).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelMode {
    /// Stop the script, run what follows a cancel.
    Graceful,
    /// Stop at once; also how an unknown mode is read.
    #[serde(other)]
    Immediate,
}

/// `POST /v1/jobs/<id>/cancel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequest {
    /// How hard.
    pub mode: CancelMode,
}

/// `POST /v1/clients`, of API-key clients alone (API-57).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientHello {
    /// The client's name, shown to operators.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}
