//! `TestGitLabClient_RequestJob`, `TestSetLastUpdate`, and what every request says of the runner.

use gitlab_runner_api::response::JobRequestOutcome;
use gitlab_runner_api::{BaseUrl, Output, StateUpdate, UpdateState};
use serde_json::{Value, json};
use vk_hub_proto::Secret;

use super::gitlab::{Answer, GitLab, Request, answer};

const JOB: &str = include_str!("job.json");

/// The job with executor options that nobody supports.
fn unsupported() -> String {
    let mut job: Value = serde_json::from_str(JOB).unwrap();
    job["image"]["executor_opts"]["docker"] = json!({"blammo": "invalid"});
    job["services"][0]["executor_opts"]["docker"] = json!({"powpow": "invalid"});
    job.to_string()
}

/// Upstream's GitLab: what it answers is told by what stands before the API, and by the token.
fn requested(request: &Request) -> Answer {
    let path = request.path.strip_suffix("/api/v4/jobs/request");
    let path = path.unwrap();
    assert_eq!(request.method, "POST");
    let body = request.json();
    assert_eq!(body["system_id"], "s_0123456789ab");
    let token = request.header("runner-token").unwrap();
    assert_eq!(body["token"], token);
    let named = |status: &str| answer(status).header("x-request-id", "foobar");
    match (path, token) {
        ("/unsupported", _) => named("201 Created").json(&unsupported()),
        ("/unavailable", _) => named("503 Service Unavailable").header("retry-after", "1"),
        ("/too-many", _) => named("429 Too Many Requests").header("retry-after", "1"),
        ("", "valid") => {
            assert_eq!(request.header("accept"), Some("application/json"));
            named("201 Created").json(JOB)
        }
        ("", "no-jobs") => {
            named("204 No Content").header("x-gitlab-last-update", "a nice timestamp")
        }
        ("", "text") => named("201 Created").body("text/plain", JOB),
        ("", "broken") => named("201 Created").json("\n"),
        _ => named("403 Forbidden"),
    }
}

struct Row {
    below: &'static str,
    token: &'static str,
    status: u16,
    job: Option<i64>,
    last_update: Option<&'static str>,
    retry_after: Option<u64>,
}

const fn row(below: &'static str, token: &'static str, status: u16) -> Row {
    Row {
        below,
        token,
        status,
        job: None,
        last_update: None,
        retry_after: None,
    }
}

const ROWS: [Row; 8] = [
    Row {
        job: Some(10),
        ..row("", "valid", 201)
    },
    Row {
        last_update: Some("a nice timestamp"),
        ..row("", "no-jobs", 204)
    },
    row("", "invalid", 403),
    Row {
        job: Some(10),
        ..row("/unsupported", "valid", 201)
    },
    // Upstream repeats these five times within the request; here the waiting is the core's (GL-65).
    Row {
        retry_after: Some(1),
        ..row("/unavailable", "valid", 503)
    },
    Row {
        retry_after: Some(1),
        ..row("/too-many", "valid", 429)
    },
    // GitLab has handed the job out, whatever it calls the body: upstream drops it.
    Row {
        job: Some(10),
        ..row("", "text", 201)
    },
    row("", "broken", 201),
];

/// GL-65, GL-66, PORT-09
#[tokio::test]
async fn a_job_request_brings_a_job_none_or_the_status_that_says_why() {
    for row in &ROWS {
        let name = format!("{}{}", row.token, row.below);
        let gitlab = GitLab::new(requested);
        let client = gitlab.client_below(row.below, row.token);
        let (job, outcome) = match client.request_job(None).await {
            JobRequestOutcome::Job(job, outcome) => (Some(job), outcome),
            JobRequestOutcome::Undecodable(undecodable, outcome) => {
                assert_eq!((row.token, undecodable.job), ("broken", None), "{name}");
                (None, outcome)
            }
            JobRequestOutcome::None(outcome) => (None, outcome),
        };
        let headers = &outcome.headers;
        assert_eq!(job.as_ref().map(|job| job.id), row.job, "{name}");
        assert_eq!(outcome.status, Some(row.status), "{name}");
        assert_eq!(headers.last_update.as_deref(), row.last_update, "{name}");
        let waits = headers.retry_after.map(|wait| wait.as_secs());
        assert_eq!(waits, row.retry_after, "{name}");
        assert_eq!(headers.request_id.as_deref(), Some("foobar"), "{name}");
        assert_eq!(gitlab.requests().len(), 1, "{name}");
        let Some(job) = job else { continue };
        let images = std::iter::once(&job.image).chain(&job.services);
        let said: Vec<String> = images
            .filter_map(|image| image.executor_opts.check().err())
            .map(|error| error.to_string())
            .collect();
        let whole = said.join("\n");
        let bad = ["[blammo]", "[powpow]"].map(|word| whole.contains(word));
        assert_eq!(bad, [row.below == "/unsupported"; 2], "{name}: {whole}");
    }
    assert!(
        "invalid".parse::<BaseUrl>().is_err(),
        "no client is made of it"
    );
}

/// GL-04, GL-05, PORT-10
#[tokio::test]
async fn the_last_update_goes_with_the_next_request_and_with_none_before() {
    let gitlab =
        GitLab::new(|_| answer("204 No Content").header("x-gitlab-last-update", "queue-v1"));
    let client = gitlab.client("valid");
    let mut last_update: Option<String> = None;
    for sent in [None, Some("queue-v1")] {
        let outcome = client.request_job(last_update.as_deref()).await;
        let JobRequestOutcome::None(outcome) = outcome else {
            panic!("a job: {outcome:?}")
        };
        let body = gitlab.requests()[0].json();
        assert_eq!(body.get("last_update").and_then(Value::as_str), sent);
        last_update = outcome.headers.last_update;
    }
    assert_eq!(last_update.as_deref(), Some("queue-v1"));
}

/// GL-43, PORT-11
#[tokio::test]
async fn every_body_says_that_jobs_are_committed_in_two_phases() {
    let gitlab = GitLab::new(|_| answer("204 No Content"));
    let client = gitlab.client("glrt-valid");
    let token = Secret::from("job-token");
    let update = |state| StateUpdate {
        state,
        output: Some(Output {
            crc: 1,
            bytesize: 2,
        }),
    };
    client.verify().await;
    client.request_job(None).await;
    for state in [
        UpdateState::Running,
        UpdateState::Success,
        UpdateState::Failed {
            reason: "script_failure".to_owned(),
            exit_code: Some(1),
        },
    ] {
        client.update_job(10, &token, &update(state)).await;
    }
    let requests = gitlab.requests();
    let paths: Vec<&str> = requests.iter().map(|one| one.path.as_str()).collect();
    let put = "/api/v4/jobs/10";
    let (verify, request) = ("/api/v4/runners/verify", "/api/v4/jobs/request");
    assert_eq!(paths, [verify, request, put, put, put]);
    for request in &requests {
        let body = request.json();
        let info = &body["info"];
        for feature in ["two_phase_job_commit", "cancel_gracefully", "cancelable"] {
            assert_eq!(
                info["features"][feature], true,
                "{} {feature}",
                request.path
            );
        }
        assert_eq!(info["executor"], "vk", "{}", request.path);
        let is_job = request.path == put;
        let system_id = body.get("system_id").and_then(Value::as_str);
        assert_eq!(system_id.is_none(), is_job, "{}", request.path);
    }
}
