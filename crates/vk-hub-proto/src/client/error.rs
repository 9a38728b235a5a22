//! What a refused request answers.

use serde::{Deserialize, Serialize};

use crate::JobId;

/// The body of every answer that is not a success (ERR-01).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientError {
    /// What went wrong, for people.
    pub error: String,
    /// What went wrong, for programs.
    pub code: ErrorCode,
    /// When to ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_secs: Option<u32>,
    /// With `conflict` of a submission: the job that the request ID made when it came first, with
    /// another body. Its owner can stop and settle it, which it could not name otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// The contract's codes (ERR-03 to ERR-19).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// Unparseable body, malformed ID, a job without a project.
    Invalid,
    /// No or bad signature, time off, unknown or removed relay.
    Unauthorized,
    /// Not this principal's to ask.
    Forbidden,
    /// The project or server waits for an operator.
    ApprovalPending,
    /// An operator rejected the project or server.
    ProjectRejected,
    /// No such job or reservation of this principal's.
    NotFound,
    /// A request ID came again with another body.
    Conflict,
    /// The reservation lapsed, was released, or its node is lost.
    ReservationGone,
    /// The spec is larger than the hub takes.
    TooLarge,
    /// A fault of the hub's own.
    Internal,
    /// No node accepted in time.
    NoCapacity,
    /// The hub is busy or starting.
    Unavailable,
    /// A code this version does not know (ERR-02).
    #[serde(other)]
    Other,
}

impl ErrorCode {
    /// The HTTP status each code travels with; [`ErrorCode::ReservationGone`] shares 410 with a
    /// `not_found` for a create whose job left the history (ERR-15), which its caller picks.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            ErrorCode::Invalid | ErrorCode::Other => 400,
            ErrorCode::Unauthorized => 401,
            ErrorCode::Forbidden | ErrorCode::ApprovalPending | ErrorCode::ProjectRejected => 403,
            ErrorCode::NotFound => 404,
            ErrorCode::Conflict => 409,
            ErrorCode::ReservationGone => 410,
            ErrorCode::TooLarge => 413,
            ErrorCode::Internal => 500,
            ErrorCode::NoCapacity | ErrorCode::Unavailable => 503,
        }
    }

    /// How to read an answer whose body has no code this version knows: a 5xx as unavailable, all
    /// else, 408 and 429 included, as final (ERR-27).
    #[must_use]
    pub const fn of_status(status: u16) -> ErrorCode {
        if status >= 500 {
            ErrorCode::Unavailable
        } else {
            ErrorCode::Other
        }
    }

    /// When the hub says to ask again, in seconds (ERR-28).
    #[must_use]
    pub const fn retry_after_secs(self) -> Option<u32> {
        match self {
            ErrorCode::NoCapacity => Some(5),
            ErrorCode::Unavailable | ErrorCode::Internal => Some(1),
            _ => None,
        }
    }

    /// Whether the same request may be sent again.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            ErrorCode::NoCapacity | ErrorCode::Unavailable | ErrorCode::Internal
        )
    }
}
