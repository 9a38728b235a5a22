//! What can happen to a runner's acquire core, what it keeps, and what it asks for.

use std::time::Duration;

use vk_hub_proto::client::{Capacity, Placement, ReservationGrant};
use vk_hub_proto::relay_session::{RelayRunnerState, ServerStatus};
use vk_hub_proto::{RequestId, ReservationId};

use crate::{HubFailure, NewJob, WithoutReservation};

/// One of a runner's `request_concurrency` job requests, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// Whether an operator's word stands between this runner and GitLab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// Ask only while the hub's status of the server is `approved` (SESS-09).
    Required,
    /// No session is held: the hub approves everything.
    NotNeeded,
}

/// A runner's settings, and what the edge knows at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where its jobs go.
    pub placement: Placement,
    /// Jobs it holds at most; 0 sets no limit of its own.
    pub limit: u32,
    /// Job requests it has open at most, 1 to 64.
    pub request_concurrency: u32,
    /// Seconds of lease it asks for (ADM-10).
    pub lease_secs: u32,
    /// The pause after a 204 that was not held (FLOW-24).
    pub check_interval: Duration,
    /// Whether `check_interval` also stands between a job and the next request.
    pub strict_check_interval: bool,
    /// Failed job requests in a row before it pauses (GL-63).
    pub unhealthy_requests_limit: u32,
    /// The longest such pause (GL-63).
    pub unhealthy_interval: Duration,
    /// Whether it waits for the hub's approval.
    pub session: Session,
    /// Jobs of its state file that are not over yet.
    pub jobs: u32,
    /// Spreads its waits; drawn by the edge.
    pub seed: u64,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A deadline has come.
    Timeout,
    /// Answers [`Effect::DrawRequestIds`]; at most 64 are kept.
    RequestIds(Vec<RequestId>),
    /// Answers [`Effect::Verify`].
    VerifyAnswer(VerifyAnswer),
    /// The session told how the server stands. Its loss is no input: the last word stays in force
    /// (SESS-22).
    Server(ServerStatus),
    /// The hub refused the relay for good (SESS-14).
    RelayRefused,
    /// Whether a slot of `concurrent` is free for this runner, whenever that changes, and once at
    /// start; see [`crate::slots::Slots`].
    SlotFree(bool),
    /// Answers [`Effect::TakeSlot`].
    SlotAnswer {
        /// Whose slot.
        lane: LaneId,
        /// Whether the slot is now the lane's.
        taken: bool,
    },
    /// Answers [`Effect::AskCapacity`].
    CapacityAnswer(Result<Capacity, HubFailure>),
    /// Answers [`Effect::Reserve`].
    ReserveAnswer {
        /// Who reserved.
        lane: LaneId,
        /// What came of it.
        answer: Result<ReservationGrant, HubFailure>,
    },
    /// Answers [`Effect::Renew`].
    RenewAnswer {
        /// Who renewed.
        lane: LaneId,
        /// What was to be renewed.
        reservation: ReservationId,
        /// What came of it.
        answer: Result<ReservationGrant, HubFailure>,
    },
    /// Answers [`Effect::Release`].
    ReleaseAnswer {
        /// What was released.
        reservation: ReservationId,
        /// What came of it.
        answer: Result<(), HubFailure>,
    },
    /// Answers [`Effect::RequestJob`], once for each.
    JobAnswer {
        /// Who asked.
        lane: LaneId,
        /// GitLab's answer.
        answer: RequestAnswer,
    },
    /// A job of this runner is over for GitLab: its core said [`crate::job::Effect::Over`].
    JobOver,
    /// The state file cannot be written (STATE-22).
    StoreFailed {
        /// Why, for people.
        why: String,
    },
    /// The state file can be written again.
    StoreWorks,
    /// The daemon is to end: no request is sent any more, open ones are waited for (GL-75).
    Drain,
}

/// What `/runners/verify` said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyAnswer {
    /// GitLab takes the token.
    Taken,
    /// GitLab refuses the token: a 403.
    Refused,
    /// No answer that counts: transport, 5xx, 429.
    Unavailable {
        /// How long GitLab asks to wait.
        retry_after: Option<Duration>,
    },
}

/// An answer to a job request, whole, or the lack of one. The edge bounds the request to 60 s
/// (ADM-11), sends it once (GL-65) and reads the whole body (ADM-38).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestAnswer {
    /// `X-GitLab-Last-Update`, where the answer has one.
    pub last_update: Option<String>,
    /// What it says.
    pub outcome: RequestOutcome,
}

/// What an answer to a job request says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// 201: a job.
    Job(Box<NewJob>),
    /// 201 without even a job's ID and token: it cannot be ended.
    Undecodable {
        /// What is wrong with it.
        why: String,
    },
    /// Any other status: 204, 403, 409, 429, 503 and the rest.
    Status {
        /// The HTTP status.
        status: u16,
        /// How long GitLab asks to wait, however it says so.
        retry_after: Option<Duration>,
    },
    /// No whole answer within 60 s.
    Failed {
        /// What happened.
        why: String,
        /// Whether the request may have reached GitLab: only then may a job be lost (ADM-38).
        sent: bool,
    },
}

/// Nothing is kept: reservations, leases, pauses and refusals live in memory only, and what a 201
/// brought is the job core's to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {}

impl vk_step::Variant for Record {
    const ALL: &'static [&'static str] = &[];

    fn variant(&self) -> &'static str {
        match *self {}
    }
}

/// What the edge is to do. Each of the first seven is answered by the input of its name, once.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum Effect {
    /// Draw so many request IDs.
    DrawRequestIds {
        /// How many, at most 64.
        count: u32,
    },
    /// `POST /runners/verify` (GL-01, ADM-36).
    Verify,
    /// `POST /v1/capacity`.
    AskCapacity {
        /// Answer once the revision has passed this one; at once where absent.
        after: Option<u64>,
        /// Seconds to hold it.
        wait_secs: u32,
    },
    /// `POST /v1/reservations` for one envelope of the placement.
    Reserve {
        /// For whom.
        lane: LaneId,
        /// Repeated where the answer of an earlier try was lost.
        request_id: RequestId,
        /// The lease.
        lease_secs: u32,
        /// Seconds nodes may be asked (API-70).
        wait_secs: u32,
    },
    /// `POST /v1/reservations/<id>/renew`.
    Renew {
        /// For whom.
        lane: LaneId,
        /// Which.
        reservation: ReservationId,
        /// The lease.
        lease_secs: u32,
    },
    /// `DELETE /v1/reservations/<id>`.
    Release {
        /// Which.
        reservation: ReservationId,
    },
    /// `POST /jobs/request`: bounded to 60 s, never aborted otherwise (ADM-11, ADM-13).
    RequestJob {
        /// For whom.
        lane: LaneId,
        /// Under which reservation (ADM-07): for logs and checks, not for the wire.
        reservation: ReservationId,
        /// `last_update` of the body; absent where it is to be left out (GL-61).
        last_update: Option<String>,
    },
    /// Take one of the daemon's slots for a request.
    TakeSlot {
        /// For whom.
        lane: LaneId,
    },
    /// A lane's slot is given back; that of a job, once it is over, too.
    ReturnSlot,
    /// The runner waits for a slot.
    WantSlot,
    /// The runner does not wait for a slot any more, and makes no use of one set aside for it.
    PassSlot,
    /// Hand the job to a job core of its own. Its lane's slot is the job's from here on.
    TakeJob {
        /// The job.
        job: Box<NewJob>,
        /// The reservation it came under, or how that was lost (ADM-28).
        reservation: Result<ReservationId, WithoutReservation>,
    },
    /// The runner's state changed: the session says so at once (SESS-18).
    State(RelayRunnerState),
    /// Say this in the log, and count it.
    Note(Note),
    /// After [`Input::Drain`]: no request is open and no reservation is held. Said once.
    Drained,
}

/// What operators are told of a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// GitLab refused the token; asking stops until a later verify succeeds (GL-62).
    TokenRefused,
    /// GitLab takes the token again.
    TokenTaken,
    /// GitLab answers nothing useful: paused (GL-63).
    Unhealthy {
        /// Failures in a row.
        failures: u32,
        /// Until the next try.
        pause: Duration,
        /// The last failure.
        why: String,
    },
    /// GitLab asked to wait (GL-07, GL-08, GL-78).
    BackOff {
        /// 429 or 503.
        status: u16,
        /// Until the next try.
        pause: Duration,
    },
    /// A job may be lost: its request got no whole answer, or one that cannot be read (ADM-38).
    RequestLost {
        /// What happened.
        why: String,
    },
    /// A reservation was lost under an open request (ADM-29).
    ReservationLost {
        /// Which.
        reservation: ReservationId,
        /// How.
        how: WithoutReservation,
    },
    /// A node granted a lease too short for a job request (ADM-41).
    LeaseTooShort {
        /// What was granted.
        lease_secs: u32,
    },
    /// A request to the hub failed.
    Hub {
        /// Which.
        what: &'static str,
        /// How.
        failure: HubFailure,
    },
    /// No node of the fleet is in the runner's pool: there will be no room of itself. Said once,
    /// and again where one was in it meanwhile.
    NoNodes,
    /// The state file cannot be written: asking stops (STATE-22).
    StoreFailed {
        /// Why.
        why: String,
    },
    /// The state file can be written again.
    StoreWorks,
}
