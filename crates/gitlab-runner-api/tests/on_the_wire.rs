//! What the client writes and how it reads answers: against a server that answers by script and
//! keeps every request as it came.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;

use gitlab_runner_api::response::JobRequestOutcome;
use gitlab_runner_api::{
    Client, Identity, Info, JobStatus, Output, StateUpdate, TlsFiles, UpdateState, VerifyOutcome,
};
use serde_json::{Value, json};
use vk_hub_proto::Secret;

/// A request as it came.
#[derive(Debug)]
struct Request {
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Answers each request with the next of these, a connection each, and hands the requests over.
/// An answer that is empty closes the connection without a word.
fn server(answers: Vec<String>) -> (Client, mpsc::Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/gitlab/", listener.local_addr().unwrap());
    let (tell, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                match line.trim_end() {
                    "" => break,
                    line => lines.push(line.to_owned()),
                }
            }
            let headers: Vec<(String, String)> = lines[1..]
                .iter()
                .map(|line| line.split_once(": ").unwrap())
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect();
            let request = Request {
                line: lines[0].clone(),
                headers,
                body: Vec::new(),
            };
            let length = request
                .header("content-length")
                .map_or(0, |length| length.parse().unwrap());
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            tell.send(Request { body, ..request }).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let identity = Identity {
        token: "glrt-runner".into(),
        system_id: "s_0123456789ab".into(),
        info: Info::new("0.1.0", "abcd1234"),
    };
    (
        Client::new(url.parse().unwrap(), identity, &TlsFiles::default()).unwrap(),
        requests,
    )
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
}

fn job_token() -> Secret {
    Secret::from("job-token")
}

/// GL-01, GL-02, GL-43, GL-44, CRED-02
#[tokio::test]
async fn verify_sends_token_system_id_and_features_and_reads_the_expiry() {
    let body = r#"{"id":42,"token":"glrt-runner","token_expires_at":"2027-01-02T03:04:05Z"}"#;
    let (client, requests) = server(vec![
        answer("200 OK", "", body),
        answer("403 Forbidden", "", ""),
    ]);
    let VerifyOutcome::Taken(verified) = client.verify().await else {
        panic!("taken")
    };
    assert_eq!(
        (verified.id, verified.token_expires_at.as_deref()),
        (42, Some("2027-01-02T03:04:05Z"))
    );
    assert_eq!(client.verify().await, VerifyOutcome::Refused);
    let request = requests.recv().unwrap();
    assert_eq!(request.line, "POST /gitlab/api/v4/runners/verify HTTP/1.1");
    assert_eq!(request.header("runner-token"), Some("glrt-runner"));
    let json = request.json();
    assert_eq!(
        (&json["token"], &json["system_id"]),
        (&json!("glrt-runner"), &json!("s_0123456789ab"))
    );
    assert_eq!(json["info"]["features"]["cancel_gracefully"], true);
}

/// GL-03, GL-04, GL-05, GL-43, GL-57, GL-77
#[tokio::test]
async fn a_job_request_carries_the_last_update_and_reads_a_job_or_none() {
    let job = r#"{"id":10,"token":"job-token","job_info":{"name":"test"}}"#;
    let last = "X-GitLab-Last-Update: abc\r\n";
    let (client, requests) = server(vec![
        answer("204 No Content", last, ""),
        answer("201 Created", "", job),
    ]);
    let JobRequestOutcome::None(none) = client.request_job(None).await else {
        panic!("none")
    };
    assert_eq!(
        (none.status, none.headers.last_update.as_deref()),
        (Some(204), Some("abc"))
    );
    let JobRequestOutcome::Job(job, _) = client.request_job(Some("abc")).await else {
        panic!("a job")
    };
    assert_eq!(
        (job.id, job.token.expose(), job.job_info.name.as_str()),
        (10, "job-token", "test")
    );
    let (first, second) = (requests.recv().unwrap(), requests.recv().unwrap());
    assert_eq!(first.line, "POST /gitlab/api/v4/jobs/request HTTP/1.1");
    assert_eq!(first.header("runner-token"), Some("glrt-runner"));
    for name in ["content-type", "accept"] {
        assert_eq!(first.header(name), Some("application/json"), "{name}");
    }
    assert!(first.json().get("last_update").is_none());
    assert_eq!(second.json()["last_update"], "abc");
    assert_eq!(
        second.json()["info"]["features"]["two_phase_job_commit"],
        true
    );
    assert_ne!(first.header("x-request-id"), second.header("x-request-id"));
}

/// GL-56
#[tokio::test]
async fn a_job_requests_body_stays_far_below_what_workhorse_takes() {
    let (client, requests) = server(vec![answer("204 No Content", "", "")]);
    client.request_job(Some(&"x".repeat(64))).await;
    assert!(requests.recv().unwrap().body.len() < 32 * 1024 / 8);
}

/// GL-65, GL-07, GL-08
#[tokio::test]
async fn a_job_request_is_not_repeated_and_says_how_long_to_wait() {
    let (client, requests) = server(vec![answer(
        "503 Service Unavailable",
        "Retry-After: 17\r\n",
        "",
    )]);
    let JobRequestOutcome::None(outcome) = client.request_job(None).await else {
        panic!("none")
    };
    assert_eq!(
        (
            outcome.status,
            outcome.headers.retry_after.map(|wait| wait.as_secs())
        ),
        (Some(503), Some(17))
    );
    assert_eq!(requests.iter().count(), 1);
}

/// ADM-38
#[tokio::test]
async fn a_job_request_that_is_cut_may_have_reached_gitlab_and_one_without_connection_has_not() {
    let (client, _requests) = server(vec![String::new()]);
    let JobRequestOutcome::None(cut) = client.request_job(None).await else {
        panic!("none")
    };
    assert!(cut.sent && cut.status.is_none(), "{cut:?}");
    let begun = "HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n\
                 {\"id\":10,\"token\":\"job-token\",\"steps\":[{\"na";
    let (client, _requests) = server(vec![begun.to_owned()]);
    let JobRequestOutcome::Undecodable(begun, _) = client.request_job(None).await else {
        panic!("undecodable")
    };
    assert_eq!(begun.job, Some((10, job_token())), "it can be failed");
    assert!(begun.why.contains("did not come whole"), "{}", begun.why);
    let half = "HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{\"id\":10,";
    let (client, _requests) = server(vec![half.to_owned()]);
    let JobRequestOutcome::None(half) = client.request_job(None).await else {
        panic!("none")
    };
    assert!(half.sent && half.status.is_none(), "{half:?}");
    let (client, requests) = server(vec![]);
    assert!(requests.recv().is_err(), "the server is gone");
    let JobRequestOutcome::None(refused) = client.request_job(None).await else {
        panic!("none")
    };
    assert!(!refused.sent && refused.status.is_none(), "{refused:?}");
}

/// SPEC-69
#[tokio::test]
async fn an_undecodable_job_still_gives_its_number_and_token() {
    let bad = r#"{"id":10,"token":"job-token","steps":"none"}"#;
    let (client, _requests) = server(vec![
        answer("201 Created", "", bad),
        answer("201 Created", "", "{\"id\":"),
    ]);
    let JobRequestOutcome::Undecodable(bad, _) = client.request_job(None).await else {
        panic!("undecodable")
    };
    assert_eq!(bad.job, Some((10, job_token())));
    assert!(!bad.why.contains("none"), "{}", bad.why);
    let JobRequestOutcome::Undecodable(torn, _) = client.request_job(None).await else {
        panic!("undecodable")
    };
    assert_eq!(torn.job, None);
}

/// CRED-05, GL-31, GL-35, GL-43
#[tokio::test]
async fn a_state_update_goes_with_the_jobs_token_and_reads_the_jobs_status() {
    let headers = "Job-Status: canceling\r\nX-GitLab-Trace-Update-Interval: 10\r\n";
    let (client, requests) = server(vec![answer("200 OK", headers, "")]);
    let output = Some(Output {
        crc: 0x367d_feeb,
        bytesize: 24,
    });
    let update = StateUpdate {
        state: UpdateState::Running,
        output,
    };
    let outcome = client.update_job(10, &job_token(), &update).await;
    assert_eq!(
        (outcome.status, outcome.headers.job_status),
        (Some(200), Some(JobStatus::Canceling))
    );
    assert_eq!(
        outcome.headers.interval.map(|interval| interval.as_secs()),
        Some(10)
    );
    let request = requests.recv().unwrap();
    assert_eq!(request.line, "PUT /gitlab/api/v4/jobs/10 HTTP/1.1");
    let said = ["content-type", "accept"].map(|name| request.header(name));
    assert_ne!(said[1], Some("application/json"), "no body is expected");
    assert_eq!(said[0], Some("application/json"));
    assert_eq!(
        (request.header("job-token"), request.header("runner-token")),
        (Some("job-token"), None)
    );
    let json = request.json();
    assert_eq!(
        (&json["token"], &json["state"]),
        (&json!("job-token"), &json!("running"))
    );
    assert_eq!(
        json["output"],
        json!({"checksum": "crc32:367dfeeb", "bytesize": 24})
    );
}

/// GL-16, GL-17, GL-77, CRED-05
#[tokio::test]
async fn a_patch_is_plain_bytes_with_their_range() {
    for debug in [true, false] {
        let (client, requests) = server(vec![answer("202 Accepted", "Range: 0-15\r\n", "")]);
        let outcome = client
            .patch_trace(10, &job_token(), debug, 10, b"hello".to_vec())
            .await;
        assert_eq!(
            (outcome.status, outcome.headers.range_end),
            (Some(202), Some(15))
        );
        let request = requests.recv().unwrap();
        let line = format!("PATCH /gitlab/api/v4/jobs/10/trace?debug_trace={debug} HTTP/1.1");
        assert_eq!(request.line, line);
        assert_eq!(request.header("content-range"), Some("10-14"));
        assert_eq!(request.header("content-length"), Some("5"));
        assert_eq!(request.header("content-type"), Some("text/plain"));
        assert_eq!(request.header("job-token"), Some("job-token"));
        assert_eq!(request.body, b"hello");
    }
}

/// GL-21
#[tokio::test]
async fn a_range_mismatch_says_where_gitlab_is() {
    let (client, _requests) = server(vec![answer(
        "416 Range Not Satisfiable",
        "Range: 0-3\r\n",
        "",
    )]);
    let outcome = client
        .patch_trace(10, &job_token(), false, 10, b"x".to_vec())
        .await;
    assert_eq!(
        (outcome.status, outcome.headers.range_end),
        (Some(416), Some(3))
    );
}

/// GL-64
#[tokio::test]
async fn an_update_is_repeated_with_the_same_request_id_while_the_server_may_do_better() {
    let busy = answer("502 Bad Gateway", "", "");
    let (client, requests) = server(vec![busy.clone(), busy, answer("200 OK", "", "")]);
    let update = StateUpdate {
        state: UpdateState::Success,
        output: None,
    };
    let outcome = client.update_job(10, &job_token(), &update).await;
    assert_eq!(outcome.status, Some(200));
    let ids: Vec<String> = requests
        .iter()
        .map(|r| r.header("x-request-id").unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id == ids[0] && id.len() == 32));
}

/// CRED-02
#[tokio::test]
async fn a_redirect_to_another_origin_is_not_followed_with_a_token() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let location = format!("location: http://{}/\r\n", elsewhere.local_addr().unwrap());
    let (client, _requests) = server(vec![answer("307 Temporary Redirect", &location, "")]);
    let VerifyOutcome::Unavailable(outcome) = client.verify().await else {
        panic!("no answer")
    };
    assert_eq!(outcome.status, Some(307));
    assert!(elsewhere.accept().is_err(), "nobody came");
}

/// What GitLab says of a refusal is kept for people, without control characters.
#[tokio::test]
async fn a_refusals_message_is_kept() {
    let (client, _requests) = server(vec![answer(
        "400 Bad Request",
        "",
        r#"{"message":"400 \u0007 no"}"#,
    )]);
    let update = StateUpdate {
        state: UpdateState::Success,
        output: None,
    };
    assert_eq!(
        client.update_job(10, &job_token(), &update).await.message,
        "400  no"
    );
}
