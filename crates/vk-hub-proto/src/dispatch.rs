//! Job messages of the node's session, from version 3 on: `{"type":"job","kind":…}`.

use serde::{Deserialize, Serialize};

use crate::client::{CancelMode, Envelope};
use crate::job::{JobResult, JobSpec};
use crate::{JobId, ReservationId};

mod chunk;
mod registry_grant;

pub use chunk::Chunk;
pub use registry_grant::{Namespace, RegistryGrant};

/// From the hub to the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum HubJobMessage {
    /// Set the envelope aside (DISP-07).
    Offer {
        /// The reservation this would become.
        reservation: ReservationId,
        /// What to set aside.
        envelope: Envelope,
        /// How long; above 600 it is clamped, 0 is invalid (DISP-74).
        lease_secs: u32,
    },
    /// Extend the lease from now (DISP-08).
    Renew {
        /// Which.
        reservation: ReservationId,
        /// How long.
        lease_secs: u32,
    },
    /// Give the envelope back (DISP-09).
    Release {
        /// Which.
        reservation: ReservationId,
    },
    /// Run a job (DISP-10).
    Start {
        /// The hub's ID for it.
        job: JobId,
        /// What it was reserved under.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reservation: Option<ReservationId>,
        /// What it was placed with.
        envelope: Envelope,
        /// The job.
        spec: JobSpec,
        /// A token for the node's registry, where the hub has made one (REG-01).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        registry: Option<Box<RegistryGrant>>,
    },
    /// Output is stored durably up to here (DISP-11).
    OutputAck {
        /// Which job's.
        job: JobId,
        /// Bytes from the start of the output.
        offset: u64,
    },
    /// Stop a job (DISP-12).
    Cancel {
        /// Which.
        job: JobId,
        /// How hard.
        mode: CancelMode,
    },
    /// The result is stored; stop repeating it (DISP-13).
    Recorded {
        /// Which job's.
        job: JobId,
    },
    /// A kind this version does not know; ignored.
    #[serde(other)]
    Other,
}

/// From the node to the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NodeJobMessage {
    /// Everything the node holds: once a session, after its report (DISP-14, DISP-15).
    Held {
        /// Its reservations.
        reservations: Vec<HeldReservation>,
        /// Its jobs without a recorded result.
        jobs: Vec<HeldJob>,
    },
    /// The answer to an offer (DISP-16).
    OfferReply {
        /// Which.
        reservation: ReservationId,
        /// Yes or no.
        reply: OfferReply,
    },
    /// The state of a reservation (DISP-17).
    Lease {
        /// Which.
        reservation: ReservationId,
        /// How it stands.
        state: LeaseState,
    },
    /// The state of a job (DISP-18).
    Job {
        /// Which.
        job: JobId,
        /// How it stands.
        state: RunState,
    },
    /// Output bytes (DISP-19).
    Output {
        /// Which job's.
        job: JobId,
        /// Where the first of them stands in the whole output.
        offset: u64,
        /// The bytes, base64 on the wire, at most [`crate::limit::CHUNK_BYTES`].
        data: Chunk,
    },
    /// How a job ended; repeated until recorded (DISP-20).
    Result {
        /// Which.
        job: JobId,
        /// How.
        result: JobResult,
    },
    /// A kind this version does not know; ignored.
    #[serde(other)]
    Other,
}

/// A reservation in `held` (DISP-68).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldReservation {
    /// Its ID.
    pub reservation: ReservationId,
    /// What is set aside.
    pub envelope: Envelope,
    /// Whole seconds left of its lease.
    pub remaining_secs: u32,
}

/// A job in `held` (DISP-68).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldJob {
    /// Its ID.
    pub job: JobId,
    /// How it stands.
    pub state: RunState,
    /// Output bytes the node has.
    pub output_len: u64,
    /// Whether it is over.
    pub finished: bool,
}

/// A node's answer to an offer (DISP-67).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum OfferReply {
    /// The envelope is set aside.
    Accepted {
        /// For how long.
        lease_secs: u32,
    },
    /// It is not.
    Refused {
        /// What is short or in the way.
        reason: RefusalReason,
        /// In words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// An answer this version does not know; it counts as a refusal.
    #[serde(other)]
    Other,
}

/// A reservation on its node (DISP-67).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LeaseState {
    /// It lasts.
    Held {
        /// Whole seconds left.
        remaining_secs: u32,
    },
    /// It is over.
    Gone {
        /// Why.
        why: GoneWhy,
    },
    /// A state this version does not know; it counts as gone.
    #[serde(other)]
    Other,
}

/// Why a reservation is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoneWhy {
    /// Its lease ran out.
    Expired,
    /// It was given back.
    Released,
    /// A job started on it.
    Started,
    /// The node knows of none; also how an unknown word is read.
    #[serde(other)]
    Unknown,
}

/// A job on its node (DISP-18, DISP-67).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunState {
    /// Journaled; it will run.
    Accepted,
    /// Not taken; it may be placed elsewhere.
    Refused {
        /// What is short or in the way.
        reason: RefusalReason,
        /// In words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// In a stage.
    Running {
        /// The stage's name.
        stage: String,
        /// What the stage is doing, for display (DISP-85).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        activity: Option<String>,
        /// The VM's size, once it is known (DISP-23).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        guest: Option<GuestSize>,
    },
    /// Over; the result follows.
    Finished,
    /// A state this version does not know; it counts as running.
    #[serde(other)]
    Other,
}

/// The size of a job's VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestSize {
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub mem_mib: u64,
}

/// Why a node took neither reservation nor job (DISP-30).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// Memory is short.
    Memory,
    /// Disk is short.
    Disk,
    /// More vCPUs than the node gives one guest.
    Cpus,
    /// Draining, drained, quarantined or in maintenance (DISP-31).
    NotReady,
    /// The node's policy forbids it.
    Policy,
    /// The named reservation is not held and there is no room without it (DISP-43).
    NoReservation,
    /// The message makes no sense.
    Invalid,
    /// The hub's ceiling is reached (DISP-32).
    Ceiling,
    /// The node's own limit is reached (DISP-33).
    Concurrency,
    /// The host runs its own gitlab-runner.
    Runner,
    /// A reason this version does not know (DISP-34).
    #[serde(other)]
    Other,
}
