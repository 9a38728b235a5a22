//! A request to the hub that did not succeed.

use std::time::Duration;

use vk_hub_proto::JobId;
use vk_hub_proto::client::ErrorCode;

/// The longest wait a hub may ask for (ERR-28).
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Why a request to the hub has no answer that counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hub answered {}: {message}", self.short())]
pub struct HubFailure {
    /// The hub's code; none where no whole answer came (refused, cut or late connections).
    pub code: Option<ErrorCode>,
    /// The HTTP status; 0 where no whole answer came.
    pub status: u16,
    /// The hub's text, or the transport's; bounded by the edge to 1024 characters.
    pub message: String,
    /// How long the hub asks to wait.
    pub retry_after: Option<Duration>,
    /// The job that the hub holds, where it refuses a submission because of it.
    pub job: Option<JobId>,
}

impl HubFailure {
    /// A failure of the connection rather than of the request.
    #[must_use]
    pub fn transport(message: impl Into<String>) -> HubFailure {
        HubFailure {
            code: None,
            status: 0,
            message: message.into(),
            retry_after: None,
            job: None,
        }
    }

    /// An answer with a code of the contract's.
    #[must_use]
    pub fn coded(code: ErrorCode, status: u16, message: impl Into<String>) -> HubFailure {
        HubFailure {
            code: Some(code),
            status,
            message: message.into(),
            retry_after: None,
            job: None,
        }
    }

    /// Whether the same request may be sent again (API-50, API-52, ERR-17 to ERR-19): transport
    /// failures, the retryable codes, and an unknown code under a 5xx status (ERR-27).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.code {
            None => true,
            Some(ErrorCode::Other) => self.status >= 500,
            Some(code) => code.is_retryable(),
        }
    }

    /// How long the hub asks to wait, at most 60 s (API-51, ERR-28).
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.retry_after.map(|asked| asked.min(LONGEST_RETRY_AFTER))
    }

    /// The code and status in a few words.
    fn short(&self) -> String {
        match self.code {
            None => "nothing".to_owned(),
            Some(code) => format!("{} {code:?}", self.status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ERR-17, ERR-18, ERR-19, API-50, API-52
    #[test]
    fn transport_failures_and_the_three_retryable_codes_are_asked_again_and_nothing_else() {
        use ErrorCode::*;
        assert!(HubFailure::transport("cut").is_retryable());
        for code in [Internal, NoCapacity, Unavailable] {
            assert!(HubFailure::coded(code, 503, "").is_retryable(), "{code:?}");
        }
        for code in [
            Invalid,
            Unauthorized,
            Forbidden,
            ApprovalPending,
            ProjectRejected,
            NotFound,
            Conflict,
            ReservationGone,
            TooLarge,
        ] {
            assert!(!HubFailure::coded(code, 400, "").is_retryable(), "{code:?}");
        }
    }

    /// ERR-27
    #[test]
    fn an_unknown_code_is_judged_by_its_status() {
        assert!(HubFailure::coded(ErrorCode::Other, 502, "").is_retryable());
        for status in [400, 408, 429] {
            assert!(!HubFailure::coded(ErrorCode::Other, status, "").is_retryable());
        }
    }

    /// API-51, ERR-28
    #[test]
    fn a_wait_asked_for_is_honoured_up_to_a_minute() {
        let mut failure = HubFailure::coded(ErrorCode::Unavailable, 503, "busy");
        assert_eq!(failure.wait(), None);
        failure.retry_after = Some(Duration::from_secs(7));
        assert_eq!(failure.wait(), Some(Duration::from_secs(7)));
        failure.retry_after = Some(Duration::from_secs(7000));
        assert_eq!(failure.wait(), Some(Duration::from_secs(60)));
    }
}
