//! An answer of GitLab's, before it is put on a wire.

use serde_json::json;

/// Status, headers and body of an answer. Its body may hold tokens, so it cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers beside those that every answer has.
    pub headers: Vec<(&'static str, String)>,
    /// Body; JSON wherever there is one.
    pub body: String,
    /// The job that it hands out.
    pub job: Option<u64>,
}

impl Reply {
    /// An answer without a body.
    pub fn empty(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: String::new(),
            job: None,
        }
    }

    /// The bare digits that GitLab answers to updates and uploads.
    pub fn digits(status: u16) -> Self {
        Self {
            body: status.to_string(),
            ..Self::empty(status)
        }
    }

    /// GitLab's own refusal: `{"message":"403 Forbidden - <reason>"}`.
    pub fn message(status: u16, text: &str) -> Self {
        Self {
            body: json!({ "message": text }).to_string(),
            ..Self::empty(status)
        }
    }

    /// A refusal of parameters: `{"error":"token is missing"}`.
    pub fn invalid(text: &str) -> Self {
        Self {
            body: json!({ "error": text }).to_string(),
            ..Self::empty(400)
        }
    }

    /// The 429 of a rate limit.
    pub fn limited() -> Self {
        let text = "This endpoint has been requested too many times. Try again later.";
        Self {
            body: json!({ "message": { "error": text } }).to_string(),
            ..Self::empty(429)
        }
    }

    /// 403 with a reason, or bare.
    pub fn forbidden(reason: Option<&str>) -> Self {
        match reason {
            Some(reason) => Self::message(403, &format!("403 Forbidden - {reason}")),
            None => Self::message(403, "403 Forbidden"),
        }
    }

    /// The `Job-Status` it carries.
    pub fn job_status(&self) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(name, _)| *name == "Job-Status");
        found.map(|(_, value)| value.as_str())
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}
