//! A daemon's requests while they are under way.

use vk_gitlab_core::acquire::LaneId;
use vk_gitlab_core::job::{CallId, Update};
use vk_hub_core::Request;
use vk_hub_proto::ReservationId;

/// Bytes that travel with an answer: those of an output read.
pub(crate) type HubAnswerBytes = Vec<u8>;

/// Which core of the daemon waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HubAsker {
    /// The acquire core, for room.
    Capacity,
    /// The acquire core, for a reservation.
    Reserve(LaneId),
    /// The acquire core, for more time.
    Renew(LaneId, ReservationId),
    /// The acquire core, giving back.
    Release(ReservationId),
    /// A job core, giving back without waiting.
    JobRelease,
    /// A job core's submission.
    Submit(u64, CallId),
    /// A job core's view.
    View(u64, CallId),
    /// A job core's read of output: from where, at most how many bytes.
    Fetch(u64, CallId, u64, u64),
    /// A job core's cancel.
    Cancel(u64, CallId),
    /// A job core's settling.
    Settle(u64, CallId),
}

/// A request to the hub.
#[derive(Clone, Debug)]
pub(crate) struct HubCall {
    /// Which life of the daemon asked.
    pub(crate) life: u32,
    /// Who waits there.
    pub(crate) asker: HubAsker,
    /// What is asked.
    pub(crate) request: Request,
}

/// What is asked of GitLab.
#[derive(Clone, Debug)]
pub(crate) enum GitLabAsk {
    /// `/runners/verify`.
    Verify,
    /// `/jobs/request`.
    Job(LaneId),
    /// `PUT /jobs/:id`: key of the core, its call, GitLab's number, the body.
    Update(u64, CallId, u64, Update),
    /// `PATCH /jobs/:id/trace`.
    Patch {
        /// Key of the core.
        key: u64,
        /// Its call.
        call: CallId,
        /// GitLab's number.
        job: u64,
        /// Where the bytes go.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
        /// The checksum with them, where it is carried on.
        crc: Option<u32>,
    },
}

/// A request to GitLab.
#[derive(Clone, Debug)]
pub(crate) struct GitLabCall {
    /// Which life of the daemon asked.
    pub(crate) life: u32,
    /// What.
    pub(crate) ask: GitLabAsk,
}
