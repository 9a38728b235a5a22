//! What requests are answered.

use serde::{Deserialize, Serialize};
use vk_hub_proto::JobId;
use vk_hub_proto::client::{Capacity, ClientError, ErrorCode, JobView, ReservationGrant};

/// The answer to a request, with the status the edge gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// 200.
    Capacity(Capacity),
    /// 201.
    Granted(ReservationGrant),
    /// 200.
    Renewed(ReservationGrant),
    /// 204.
    Released,
    /// 201.
    Submitted(JobView),
    /// 200.
    View(JobView),
    /// 200, raw bytes the edge reads from its store (API-36 to API-38).
    Output(OutputAnswer),
    /// 416 with `vk-output-length` (API-39).
    PastEnd {
        /// The output's length so far.
        length: u64,
    },
    /// 202.
    CancelTaken(JobView),
    /// 204.
    Settled,
    /// An operator's request is done.
    Done,
    /// Anything else.
    Refused(Refusal),
}

/// Which bytes of an output to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputAnswer {
    /// Which job's.
    pub job: JobId,
    /// `vk-output-offset`: the first byte.
    pub offset: u64,
    /// How many, at most [`vk_hub_proto::limit::OUTPUT_ANSWER_BYTES`].
    pub len: u64,
    /// `vk-output-length`: the output's length so far.
    pub length: u64,
    /// `vk-output-complete`: the job ended and these bytes reach the output's end.
    pub complete: bool,
}

/// A refusal, as the contract's table of statuses and codes has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The body; its `retry_after_secs` is also the `retry-after` header (ERR-28).
    pub error: ClientError,
}

impl Refusal {
    fn new(status: u16, code: ErrorCode, retry: Option<u32>, error: impl Into<String>) -> Refusal {
        Refusal {
            status,
            error: ClientError {
                error: error.into(),
                code,
                retry_after_secs: retry,
                job: None,
            },
        }
    }

    pub(crate) fn invalid(error: impl Into<String>) -> Refusal {
        Refusal::new(400, ErrorCode::Invalid, None, error)
    }

    pub(crate) fn forbidden(error: impl Into<String>) -> Refusal {
        Refusal::new(403, ErrorCode::Forbidden, None, error)
    }

    pub(crate) fn approval_pending(error: impl Into<String>) -> Refusal {
        Refusal::new(403, ErrorCode::ApprovalPending, None, error)
    }

    pub(crate) fn project_rejected(error: impl Into<String>) -> Refusal {
        Refusal::new(403, ErrorCode::ProjectRejected, None, error)
    }

    pub(crate) fn not_found(error: impl Into<String>) -> Refusal {
        Refusal::new(404, ErrorCode::NotFound, None, error)
    }

    pub(crate) fn conflict(error: impl Into<String>) -> Refusal {
        Refusal::new(409, ErrorCode::Conflict, None, error)
    }

    /// The same refusal, naming the job that the request made before.
    pub(crate) fn of_job(mut self, job: JobId) -> Refusal {
        self.error.job = Some(job);
        self
    }

    pub(crate) fn reservation_gone(error: impl Into<String>) -> Refusal {
        Refusal::new(410, ErrorCode::ReservationGone, None, error)
    }

    pub(crate) fn job_forgotten(error: impl Into<String>) -> Refusal {
        Refusal::new(410, ErrorCode::NotFound, None, error)
    }

    pub(crate) fn too_large(error: impl Into<String>) -> Refusal {
        Refusal::new(413, ErrorCode::TooLarge, None, error)
    }

    pub(crate) fn no_capacity(error: impl Into<String>) -> Refusal {
        Refusal::new(503, ErrorCode::NoCapacity, Some(5), error)
    }

    pub(crate) fn unavailable(error: impl Into<String>) -> Refusal {
        Refusal::new(503, ErrorCode::Unavailable, Some(1), error)
    }
}
