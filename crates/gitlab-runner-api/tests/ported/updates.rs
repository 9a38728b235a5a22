//! `TestUpdateJob`, `TestUpdateJobAsKeepAlive`, `TestUpdateIntervalHeaderHandling`.

use std::time::Duration;

use gitlab_runner_api::{JobStatus, Output, StateUpdate, UpdateState};
use serde_json::json;
use vk_hub_proto::Secret;

use super::gitlab::{Answer, GitLab, Request, answer};

fn update(state: UpdateState) -> StateUpdate {
    StateUpdate {
        state,
        output: Some(Output {
            crc: 0x0d7c_f601,
            bytesize: 42,
        }),
    }
}

fn failed(reason: &str) -> UpdateState {
    UpdateState::Failed {
        reason: reason.to_owned(),
        exit_code: None,
    }
}

/// Upstream's GitLab: the job's number says what it answers.
fn updated(request: &Request) -> Answer {
    assert_eq!(request.method, "PUT");
    assert_eq!(request.header("job-token"), Some("token"));
    let body = request.json();
    assert_eq!(body["token"], "token");
    assert_eq!(
        body["output"],
        json!({"checksum": "crc32:0d7cf601", "bytesize": 42})
    );
    match request.path.as_str() {
        "/api/v4/jobs/200" => {
            let reason = body
                .get("failure_reason")
                .and_then(|reason| reason.as_str());
            match (body["state"].as_str(), reason) {
                (Some("running"), None) => answer("200 OK"),
                (Some("failed"), Some("script_failure" | "runner_system_failure")) => {
                    answer("200 OK")
                }
                _ => answer("400 Bad Request"),
            }
        }
        "/api/v4/jobs/202" => answer("202 Accepted"),
        "/api/v4/jobs/403" => answer("403 Forbidden"),
        "/api/v4/jobs/412" => answer("412 Precondition Failed"),
        _ => answer("404 Not Found"),
    }
}

/// PORT-14
#[tokio::test]
async fn a_state_is_told_once_and_the_answer_handed_on() {
    // Upstream's eighth row has a state that GitLab does not know: the type has none.
    let rows = [
        (200, UpdateState::Running, 200),
        (403, UpdateState::Success, 403),
        (200, UpdateState::Success, 400),
        (404, UpdateState::Success, 404),
        (202, UpdateState::Success, 202),
        (412, UpdateState::Success, 412),
        (200, failed("script_failure"), 200),
        (200, failed("invalid-failure-reason"), 400),
    ];
    let token = Secret::from("token");
    for (job, state, status) in rows {
        let row = format!("{job} {state:?}");
        let gitlab = GitLab::new(updated);
        let client = gitlab.client("glrt-runner");
        let outcome = client.update_job(job, &token, &update(state)).await;
        assert_eq!(outcome.status, Some(status), "{row}");
        let headers = &outcome.headers;
        assert_eq!(
            (headers.job_status, headers.interval),
            (None, None),
            "{row}"
        );
        assert_eq!(gitlab.requests().len(), 1, "{row}: not repeated");
    }
}

/// GL-35, PORT-15
#[tokio::test]
async fn a_keep_alives_answer_says_how_the_job_stands() {
    let rows = [
        (10, None, None),
        (11, Some("canceled"), Some(JobStatus::Canceled)),
        (12, Some("failed"), Some(JobStatus::Failed)),
        (13, Some("canceling"), Some(JobStatus::Canceling)),
    ];
    for (job, word, status) in rows {
        let gitlab = GitLab::new(move |request| {
            assert_eq!(request.path, format!("/api/v4/jobs/{job}"));
            assert_eq!(request.json()["state"], "running");
            answer("200 OK").maybe("job-status", word)
        });
        let client = gitlab.client("glrt-runner");
        let keep_alive = update(UpdateState::Running);
        let outcome = client
            .update_job(job, &Secret::from("token"), &keep_alive)
            .await;
        assert_eq!(outcome.status, Some(200), "{job}");
        assert_eq!(outcome.headers.job_status, status, "{job}");
    }
}

/// GL-19, PORT-21
#[tokio::test]
async fn the_update_interval_is_read_from_patches_and_from_refused_updates() {
    // Upstream hands on 0 and less and its loop leaves them out; here they are none at once.
    let rows = [
        (Some("-10"), None),
        (Some("0"), None),
        (Some("10"), Some(Duration::from_secs(10))),
        (Some("some text"), None),
        (Some(""), None),
        (None, None),
    ];
    let token = Secret::from("token");
    for (header, interval) in rows {
        let gitlab = GitLab::new(move |request| {
            let status = match request.method.as_str() {
                "PUT" => "404 Not Found",
                _ => "202 Accepted",
            };
            answer(status).maybe("x-gitlab-trace-update-interval", header)
        });
        let client = gitlab.client("glrt-runner");
        let put = client
            .update_job(10, &token, &update(UpdateState::Running))
            .await;
        assert_eq!(put.status, Some(404), "{header:?}");
        assert_eq!(put.headers.interval, interval, "PUT {header:?}");
        let bytes = b"trace trace trace".to_vec();
        let patch = client.patch_trace(10, &token, false, 0, bytes).await;
        assert_eq!(patch.status, Some(202), "{header:?}");
        assert_eq!(patch.headers.interval, interval, "PATCH {header:?}");
    }
}
