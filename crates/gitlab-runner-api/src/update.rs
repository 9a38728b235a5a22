//! `PUT /jobs/:id` (GL-31, GL-43).

use serde::Serialize;
use vk_hub_proto::Secret;

use crate::answer::Outcome;
use crate::client::{Auth, Client, JsonRequest};
use crate::features::Info;
use crate::observe::Endpoint;
use crate::retry::Retry;

/// What a job's state becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateState {
    /// `running`: the commit, or a keep-alive.
    Running,
    /// `success`.
    Success,
    /// `failed`.
    Failed {
        /// `failure_reason`.
        reason: String,
        /// `exit_code`, left out where none or 0.
        exit_code: Option<i32>,
    },
}

/// The trace as the runner has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its CRC-32 (IEEE).
    pub crc: u32,
    /// Its bytes.
    pub bytesize: u64,
}

/// A state update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateUpdate {
    /// The state.
    pub state: UpdateState,
    /// The trace; none with the commit.
    pub output: Option<Output>,
}

#[derive(Serialize)]
struct Body<'a> {
    info: &'a Info,
    token: &'a str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
    output: OutputBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
}

#[derive(Serialize)]
struct OutputBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytesize: Option<u64>,
}

impl<'a> Body<'a> {
    fn new(info: &'a Info, token: &'a Secret, update: &'a StateUpdate) -> Body<'a> {
        let (state, failure_reason, exit_code) = match &update.state {
            UpdateState::Running => ("running", None, None),
            UpdateState::Success => ("success", None, None),
            UpdateState::Failed { reason, exit_code } => (
                "failed",
                Some(reason.as_str()),
                exit_code.filter(|code| *code != 0),
            ),
        };
        let checksum = update
            .output
            .map(|output| format!("crc32:{:08x}", output.crc));
        let bytesize = update
            .output
            .map(|output| output.bytesize)
            .filter(|size| *size > 0);
        Body {
            info,
            token: token.expose(),
            state,
            failure_reason,
            checksum: checksum.clone(),
            output: OutputBody { checksum, bytesize },
            exit_code,
        }
    }
}

impl Client {
    /// Tells GitLab a job's state, with the job's own token (CRED-05).
    pub async fn update_job(&self, job: u64, token: &Secret, update: &StateUpdate) -> Outcome {
        let body = Body::new(&self.identity().info, token, update);
        let request = JsonRequest {
            method: reqwest::Method::PUT,
            path: &format!("jobs/{job}"),
            auth: Auth::Job(token),
            endpoint: Endpoint::JobUpdate,
            retry: Retry::USUAL,
            within: None,
        };
        self.json(request, &body).await.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(state: UpdateState, output: Option<Output>) -> serde_json::Value {
        let info = Info::new("0.1.0", "abcd1234");
        let token = Secret::from("job-token");
        let update = StateUpdate { state, output };
        let mut json = serde_json::to_value(Body::new(&info, &token, &update)).unwrap();
        assert_eq!(json["info"]["executor"], "vk");
        json.as_object_mut().unwrap().remove("info");
        json
    }

    /// GL-29, GL-31, GL-43, GL-72, GL-77
    #[test]
    fn the_bodies_of_commit_keep_alive_and_final_state() {
        let output = Some(Output {
            crc: 0x0d7c_f601,
            bytesize: 51,
        });
        let sum = "crc32:0d7cf601";
        let rows = [
            (
                body(UpdateState::Running, None),
                serde_json::json!({"token": "job-token", "state": "running", "output": {}}),
            ),
            (
                body(UpdateState::Running, output),
                serde_json::json!({"token": "job-token", "state": "running", "checksum": sum,
                    "output": {"checksum": sum, "bytesize": 51}}),
            ),
            (
                body(UpdateState::Success, output),
                serde_json::json!({"token": "job-token", "state": "success", "checksum": sum,
                    "output": {"checksum": sum, "bytesize": 51}}),
            ),
            (
                body(
                    UpdateState::Failed {
                        reason: "script_failure".into(),
                        exit_code: Some(42),
                    },
                    output,
                ),
                serde_json::json!({"token": "job-token", "state": "failed",
                    "failure_reason": "script_failure", "checksum": sum,
                    "output": {"checksum": sum, "bytesize": 51}, "exit_code": 42}),
            ),
            (
                body(
                    UpdateState::Failed {
                        reason: "job_execution_timeout".into(),
                        exit_code: Some(0),
                    },
                    output,
                ),
                serde_json::json!({"token": "job-token", "state": "failed",
                    "failure_reason": "job_execution_timeout", "checksum": sum,
                    "output": {"checksum": sum, "bytesize": 51}}),
            ),
        ];
        for (written, expected) in rows {
            assert_eq!(written, expected);
        }
    }

    /// GL-72
    #[test]
    fn an_empty_trace_has_a_checksum_and_no_size() {
        let empty = body(
            UpdateState::Success,
            Some(Output {
                crc: 0,
                bytesize: 0,
            }),
        );
        assert_eq!(
            empty["output"],
            serde_json::json!({"checksum": "crc32:00000000"})
        );
    }
}
