//! What a 201 brought, as the edge made it of GitLab's response.

use serde::{Deserialize, Serialize};
use vk_hub_proto::job::{FailureClass, JobSpec};
use vk_hub_proto::{RequestId, Secret};

/// A job GitLab handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// GitLab's number of the job.
    pub gitlab_job: u64,
    /// The job token.
    pub token: Secret,
    /// Drawn by the edge for the submission (API-45).
    pub request_id: RequestId,
    /// What to do with it.
    pub work: Work,
    /// Bytes of the spec as it is sent, to compare with the hub's limit (SPEC-82); 0 without one.
    pub spec_bytes: usize,
    /// The daemon's own opening lines, stamped (GL-74).
    pub preamble: String,
    /// `features.failure_reasons` of the response.
    pub failure_reasons: Vec<String>,
    /// `CI_DEBUG_TRACE` (GL-73).
    pub debug_trace: bool,
    /// The job's `FF_TIMESTAMPS` (GL-28).
    pub timestamps: bool,
    /// Wall-clock seconds since 1970 when the answer came.
    pub taken_at: u64,
    /// Wall-clock seconds since 1970 at which the job token ends (its timeout and 5 min more);
    /// none where the timeout is not known (GL-59).
    pub token_ends: Option<u64>,
}

/// What to do with a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Run it.
    Run(Box<JobSpec>),
    /// Fail it: the response asks for what is not supported or could not be read.
    Refuse {
        /// The class of the failure.
        class: FailureClass,
        /// What the trace says about it, unstamped, at most 64 lines of 4096 bytes.
        lines: Vec<String>,
    },
}

/// Why a job came without a live reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WithoutReservation {
    /// The hub answered `reservation_gone` to a renewal during the request (ADM-29).
    Gone,
    /// The lease ran out, as the daemon counts it, before a renewal was answered (ADM-28).
    Lapsed,
}
