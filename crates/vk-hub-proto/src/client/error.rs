//! What a refused request answers.

use serde::{Deserialize, Serialize};

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
    /// Whether the same request may be sent again.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            ErrorCode::NoCapacity | ErrorCode::Unavailable | ErrorCode::Internal
        )
    }
}
