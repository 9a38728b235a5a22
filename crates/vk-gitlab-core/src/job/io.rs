//! What can happen to a job core, what it keeps, and what it asks for.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vk_hub_proto::client::{CancelMode, JobSubmission, JobView, Placement};
use vk_hub_proto::job::JobSpec;
use vk_hub_proto::secret::expose;
use vk_hub_proto::{JobId, RequestId, ReservationId, Secret};

use crate::{HubFailure, NewJob, WithoutReservation};

/// Settings, and what the edge knows when the core is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The hub's URL, for the trace's words on approval (ERR-24).
    pub hub_url: String,
    /// Seconds a job may wait for a place (ADM-21); a record keeps its own.
    pub place_within_secs: u32,
    /// Wall-clock seconds since 1970 at the `now` of the core's opening.
    pub wall: u64,
    /// Spreads waits; drawn by the edge.
    pub seed: u64,
}

/// Numbers the calls of one core's life, so that an answer is taken for its own call only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CallId(pub u64);

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A deadline has come.
    Timeout,
    /// GitLab handed the job over: the first input of a core opened without records.
    Take {
        /// The job.
        job: Box<NewJob>,
        /// Where it goes.
        placement: Placement,
        /// The reservation it came under, or how that was lost.
        reservation: Result<ReservationId, WithoutReservation>,
    },
    /// Answers [`Effect::Submit`].
    SubmitAnswer(CallId, Result<JobView, HubFailure>),
    /// Answers [`Effect::View`].
    ViewAnswer(CallId, Result<JobView, HubFailure>),
    /// Answers [`Effect::Fetch`].
    FetchAnswer(CallId, Result<OutputRead, HubFailure>),
    /// Answers [`Effect::Sum`]: the checksum with the span's bytes added.
    SumAnswer(CallId, u32),
    /// Answers [`Effect::Cancel`].
    CancelAnswer(CallId, Result<JobView, HubFailure>),
    /// Answers [`Effect::Settle`].
    SettleAnswer(CallId, Result<(), HubFailure>),
    /// Answers [`Effect::RenderSuffix`]: the closing lines as the trace will hold them.
    SuffixAnswer(CallId, String),
    /// Answers [`Effect::Update`], after the client's own tries (GL-64).
    UpdateAnswer(CallId, GitLabAnswer),
    /// Answers [`Effect::Patch`], after the client's own tries (GL-64).
    PatchAnswer {
        /// Which call.
        call: CallId,
        /// GitLab's answer.
        answer: GitLabAnswer,
        /// The checksum with the span's bytes added, where the effect gave one to start from.
        crc: Option<u32>,
    },
    /// The hub's session said that it knows this relay no more: jobs are followed no further once it
    /// refuses a request too.
    RelayRemoved {
        /// In the hub's words.
        why: String,
    },
    /// Answers [`Effect::Sum`] or [`Effect::Patch`]: the edge does not hold the bytes of the span. They
    /// are read again.
    NotHeld(CallId),
    /// Records of this core could not be written, and the effects that waited for them were
    /// dropped. Calls made earlier may still answer; their answers are not waited for.
    StoreFailed {
        /// Why, for people.
        why: String,
        /// Whether an earlier write of this job succeeded: the state file knows it.
        kept: bool,
    },
}

/// GitLab's answer to a PUT or PATCH, or the lack of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitLabAnswer {
    /// The HTTP status; none where no whole answer came.
    pub status: Option<u16>,
    /// `Job-Status`.
    pub job_status: Option<JobStatus>,
    /// The n of `Range: 0-<n>`, which is a size (GL-50); none where absent or unreadable.
    pub range_end: Option<u64>,
    /// `X-GitLab-Trace-Update-Interval`, where it is a positive number of seconds.
    pub interval: Option<Duration>,
    /// How long GitLab asks to wait, however it says so.
    pub retry_after: Option<Duration>,
}

/// GitLab's word for how a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// `running`.
    Running,
    /// `canceling`: stop gracefully (GL-36).
    Canceling,
    /// `canceled` (GL-37).
    Canceled,
    /// `success`.
    Success,
    /// `failed` (GL-37).
    Failed,
    /// Any other word; it changes nothing.
    Other,
}

/// What a read of the hub's output brought. The bytes stay with the edge until the next
/// [`Effect::Fetch`]; there is never more than one such span, of at most 1 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputRead {
    /// Bytes read from the offset asked for.
    pub len: u64,
    /// Bytes of output the hub has so far: `vk-output-length`.
    pub total: u64,
    /// `vk-output-complete`: the job ended and the read reached the end. A read cut to
    /// `max_bytes` is not complete. A 416 is a read of no bytes that is not complete.
    pub complete: bool,
}

/// A part of the trace: where its bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Of the preamble ([`super::JobRecord::preamble`]).
    Preamble {
        /// First byte.
        from: u64,
        /// How many.
        len: u64,
    },
    /// Of the hub's output, all of it inside the bytes last fetched.
    Output {
        /// First byte, counted in the hub's output.
        from: u64,
        /// How many.
        len: u64,
    },
    /// Of the suffix ([`super::JobRecord::suffix`]).
    Suffix {
        /// First byte.
        from: u64,
        /// How many.
        len: u64,
    },
}

impl Span {
    /// How many bytes it has.
    #[must_use]
    pub const fn len(&self) -> u64 {
        match *self {
            Span::Preamble { len, .. } | Span::Output { len, .. } | Span::Suffix { len, .. } => len,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A length of the trace and the CRC-32 (IEEE) of exactly so many bytes of it (GL-72).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SafePoint {
    /// Bytes.
    pub offset: u64,
    /// Their CRC-32; 0 for none.
    pub crc: u32,
}

/// What is kept. A record adds to those before it; [`super::JobRecord`] is their sum.
#[derive(
    Clone, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::VariantNames,
)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// GitLab handed the job over (FLOW-13, STATE-03). It may come again, like every other: a core
    /// repeats what it keeps after a failed write.
    Taken(Box<Taken>),
    /// The hub has the job; the spec is dropped (STATE-20).
    Submitted {
        /// The hub's ID for it.
        hub_job: JobId,
    },
    /// GitLab took `state=running` after a node accepted the job (GL-14).
    Committed,
    /// GitLab has so much of the trace; at most one every 10 s (STATE-23, GL-72).
    Patched(SafePoint),
    /// How the job ended, as GitLab is to be told (STATE-26).
    Ended(Ended),
    /// The daemon's closing lines, as the trace holds them (GL-74).
    Suffix {
        /// The bytes.
        text: String,
    },
    /// The closing lines go out: from here on GitLab may have them there.
    Closing(super::Closing),
    /// The hub refused the submission: it holds nothing of the job.
    Refused,
    /// The submission's fate is unknown and the job is being failed (ERR-29).
    Abandoned,
    /// Nothing more is written to GitLab (GL-39); the hub's job is stopped and settled.
    GivenUp {
        /// Why.
        why: WhyGivenUp,
    },
    /// The final state reached GitLab, or never will.
    Reported {
        /// Whether it reached it.
        delivered: bool,
    },
    /// Hub and GitLab are done with the job: the record is dropped.
    Removed,
}

/// What is known of a job once GitLab handed it over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// GitLab's number of the job.
    pub gitlab_job: u64,
    /// The job token.
    #[serde(serialize_with = "expose")]
    pub job_token: Secret,
    /// Of the submission.
    pub request_id: RequestId,
    /// The reservation it is submitted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationId>,
    /// How the reservation was lost during the request, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_reservation: Option<WithoutReservation>,
    /// Of the submission (ADM-21).
    pub place_within_secs: u32,
    /// Of the submission.
    pub placement: Placement,
    /// The job, while it may have to be submitted again (STATE-20).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<JobSpec>>,
    /// The daemon's opening lines, as the trace holds them (GL-74).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub preamble: String,
    /// What this GitLab calls failures.
    #[serde(default)]
    pub failure_reasons: Vec<String>,
    /// `CI_DEBUG_TRACE`.
    #[serde(default)]
    pub debug_trace: bool,
    /// The job's `FF_TIMESTAMPS` (GL-28).
    pub timestamps: bool,
    /// Wall-clock seconds since 1970 when GitLab handed it over; 0 where not known.
    #[serde(default)]
    pub taken_at: u64,
    /// Wall-clock seconds since 1970 at which the job token ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ends: Option<u64>,
    /// Fields of the state file this version does not know (STATE-19).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown: BTreeMap<String, serde_json::Value>,
}

/// How a job ended, in GitLab's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Whether it succeeded.
    pub success: bool,
    /// `failure_reason`; none after success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// `exit_code`, of failed scripts alone (FAIL-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The daemon's closing lines, unstamped (GL-74).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// Wall-clock seconds since 1970 when that was known (GL-70).
    #[serde(default)]
    pub at: u64,
}

/// Why nothing more is written to GitLab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyGivenUp {
    /// `Job-Status: canceled`, with whatever status.
    Canceled,
    /// `Job-Status: failed`, with whatever status.
    Failed,
    /// A 403 that does not say why: the trace may be too large for GitLab, or the job may be
    /// erased or its project deleted (GL-52).
    Forbidden,
    /// A 404, which GitLab itself never answers: perhaps a proxy's (GL-53).
    NotFound,
}

/// What the edge is to do. Each that carries a [`CallId`] is answered once.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum Effect {
    /// `POST /v1/jobs`.
    Submit {
        /// Which call.
        call: CallId,
        /// The body.
        submission: Box<JobSubmission>,
    },
    /// `GET /v1/jobs/<id>`.
    View {
        /// Which call.
        call: CallId,
        /// Which job.
        hub_job: JobId,
        /// Answer once the revision has passed this one.
        after: Option<u64>,
        /// Seconds to hold it.
        wait_secs: u32,
    },
    /// `GET /v1/jobs/<id>/output`. The edge drops the bytes it still holds of the last one.
    Fetch {
        /// Which call.
        call: CallId,
        /// Which job.
        hub_job: JobId,
        /// First byte wanted.
        offset: u64,
        /// Bytes kept of the answer at most; never over 1 MiB.
        max_bytes: u64,
        /// Seconds to hold it.
        wait_secs: u32,
    },
    /// Go on with a CRC-32 over these bytes.
    Sum {
        /// Which call.
        call: CallId,
        /// The bytes.
        span: Span,
        /// The CRC-32 of everything before them.
        crc: u32,
    },
    /// `POST /v1/jobs/<id>/cancel`.
    Cancel {
        /// Which call.
        call: CallId,
        /// Which job.
        hub_job: JobId,
        /// How hard.
        mode: CancelMode,
    },
    /// `POST /v1/jobs/<id>/settle`.
    Settle {
        /// Which call.
        call: CallId,
        /// Which job.
        hub_job: JobId,
    },
    /// `DELETE /v1/reservations/<id>`, tried for as long as its lease may last; not answered
    /// (ERR-21).
    Release {
        /// Which.
        reservation: ReservationId,
    },
    /// Stamp the closing lines where the job has stamps (GL-26, GL-27).
    RenderSuffix {
        /// Which call.
        call: CallId,
        /// The lines.
        lines: Vec<String>,
        /// Whether to stamp them.
        timestamps: bool,
    },
    /// `PUT /jobs/:id`.
    Update {
        /// Which call.
        call: CallId,
        /// What it says.
        update: Update,
    },
    /// `PATCH /jobs/:id/trace` with `Content-Range: <offset>-<offset + len - 1>`. With no bytes it
    /// asks how the job stands; the span is then held by nobody.
    Patch {
        /// Which call.
        call: CallId,
        /// GitLab's offset of the first byte.
        offset: u64,
        /// The bytes, at most 1 MiB (GL-18).
        span: Span,
        /// The CRC-32 of everything before them, where it is to be carried on.
        crc: Option<u32>,
    },
    /// The job is over for GitLab: its slot is free. Said once a life, and again after a write that
    /// failed, which may have taken it away: it counts once.
    Over,
    /// The core is done, its record dropped: the edge drops the core.
    Removed,
    /// Say this in the log.
    Note(Note),
}

/// What a `PUT /jobs/:id` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// `state`, with what belongs to it.
    pub state: UpdateState,
    /// `output`: checksum and size of the trace; none with the commit.
    pub output: Option<SafePoint>,
}

/// The `state` of a `PUT /jobs/:id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateState {
    /// `running`: the commit, a keep-alive, or the first question after a restart.
    Running,
    /// `success`.
    Success,
    /// `failed`.
    Failed {
        /// `failure_reason`.
        reason: String,
        /// `exit_code`.
        exit_code: Option<i32>,
    },
}

/// What operators are told of a job; with the IDs of its record these are the correlation lines
/// (FLOW-23).
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Note {
    /// GitLab handed the job over.
    Received,
    /// A recorded job is carried on after a restart.
    Resumed,
    /// The hub has the job.
    Submitted,
    /// A node accepted it.
    Accepted,
    /// It ended.
    Ended,
    /// GitLab has its final state.
    Reported,
    /// GitLab will never have its final state (GL-59, GL-70).
    Undelivered {
        /// That state: `success`, or `failed` with its reason.
        state: String,
        /// Why.
        why: String,
    },
    /// The hub settled it.
    Settled,
    /// GitLab asked to stop it.
    Canceling,
    /// Nothing more is written to GitLab.
    GivenUp(WhyGivenUp),
    /// The hub refused it.
    Refused(HubFailure),
    /// The hub did not answer for `place_within_secs` (ERR-29).
    Abandoned,
    /// A request to the hub failed and is tried again.
    Hub {
        /// Which.
        what: &'static str,
        /// How.
        failure: HubFailure,
    },
    /// GitLab answered what it never does itself: a 404 or 412 (GL-53).
    ProxySuspected {
        /// The status.
        status: u16,
    },
    /// GitLab's trace is longer than ours (GL-50).
    TraceAhead {
        /// GitLab's length.
        gitlab: u64,
        /// Ours.
        ours: u64,
    },
    /// GitLab lost trace bytes it had (GL-50).
    TraceBehind {
        /// GitLab's length.
        gitlab: u64,
        /// What it had acknowledged.
        acknowledged: u64,
    },
    /// The hub has no such job any more.
    LostByHub,
    /// The hub removed the relay: nothing more is learnt of the job.
    RelayRemoved,
    /// The state file could not be written.
    StoreFailed {
        /// Why.
        why: String,
    },
}
