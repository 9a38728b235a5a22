//! Upstream's cases of trace patches: what is sent of a trace, and what the answer says.

use gitlab_runner_api::{Client, JobStatus};
use vk_hub_proto::Secret;

use super::gitlab::{Answer, GitLab, Request, answer};

const TRACE: &[u8] = b"trace trace trace";

async fn patch(client: &Client, debug: bool, offset: usize, bytes: &[u8]) -> Outcome {
    let token = Secret::from("token");
    let outcome = client
        .patch_trace(1, &token, debug, offset as u64, bytes.to_vec())
        .await;
    Outcome {
        status: outcome.status,
        range_end: outcome.headers.range_end,
        job_status: outcome.headers.job_status,
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    status: Option<u16>,
    range_end: Option<u64>,
    job_status: Option<JobStatus>,
}

/// The range that a patch names, first and last byte, which must be all it names.
fn range(request: &Request) -> (usize, usize) {
    assert_eq!(request.method, "PATCH");
    assert!(request.path.starts_with("/api/v4/jobs/1/trace?"));
    assert_eq!(request.header("job-token"), Some("token"));
    assert_eq!(request.header("content-type"), Some("text/plain"));
    let text = request.header("content-range").unwrap();
    let (first, last) = text.split_once('-').unwrap();
    (first.parse().unwrap(), last.parse().unwrap())
}

/// GL-16, GL-17, PORT-16
#[tokio::test]
async fn a_patch_carries_the_bytes_of_the_range_it_names() {
    for (word, job_status) in [
        ("running", JobStatus::Running),
        ("canceling", JobStatus::Canceling),
    ] {
        let gitlab = GitLab::new(move |request| {
            let (first, last) = range(request);
            assert_eq!(request.body, TRACE[first..=last]);
            let size = format!("0-{}", last + 1);
            answer("202 Accepted")
                .header("job-status", word)
                .header("range", &size)
        });
        let client = gitlab.client("glrt-runner");
        for (offset, bytes, range_end) in
            [(0, TRACE, 17), (3, &TRACE[3..], 17), (3, &TRACE[3..10], 10)]
        {
            let outcome = patch(&client, false, offset, bytes).await;
            let expected = Outcome {
                status: Some(202),
                range_end: Some(range_end),
                job_status: Some(job_status),
            };
            assert_eq!(outcome, expected, "{word} {offset} {range_end}");
        }
        assert_eq!(gitlab.requests().len(), 3, "{word}");
    }
}

/// GL-21, PORT-17
#[tokio::test]
async fn a_patch_past_gitlabs_size_is_told_the_size_and_no_status() {
    fn to_ten(request: &Request) -> Answer {
        if range(request).0 > 10 {
            answer("416 Range Not Satisfiable").header("range", "0-10")
        } else {
            answer("202 Accepted").header("job-status", "canceling")
        }
    }
    let gitlab = GitLab::new(to_ten);
    let client = gitlab.client("glrt-runner");
    let mismatch = || Outcome {
        status: Some(416),
        range_end: Some(10),
        job_status: None,
    };
    let taken = Outcome {
        status: Some(202),
        range_end: None,
        job_status: Some(JobStatus::Canceling),
    };
    for (offset, expected) in [(11, mismatch()), (15, mismatch()), (5, taken)] {
        let outcome = patch(&client, false, offset, &TRACE[offset..]).await;
        assert_eq!(outcome, expected, "{offset}");
    }
}

/// GL-17, PORT-18, PORT-19
#[tokio::test]
async fn range_and_length_are_those_of_the_bytes() {
    let gitlab = GitLab::new(|_| answer("202 Accepted"));
    let client = gitlab.client("glrt-runner");
    // The last is upstream's case of the header's values; the others are of one that grows.
    let rows: [(usize, &[u8], &str, &str); 8] = [
        (0, b"1", "0-0", "1"),
        (0, b"12", "0-1", "2"),
        (0, b"test", "0-3", "4"),
        (4, b" ", "4-4", "1"),
        (5, b"test", "5-8", "4"),
        (9, b"test", "9-12", "4"),
        (13, b" ", "13-13", "1"),
        (0, TRACE, "0-16", "17"),
    ];
    for (offset, bytes, range, length) in rows {
        patch(&client, false, offset, bytes).await;
        let request = &gitlab.requests()[0];
        assert_eq!(request.header("content-range"), Some(range));
        assert_eq!(request.header("content-length"), Some(length), "{range}");
        assert_eq!(request.body, bytes, "{range}");
    }
}

/// GL-16, PORT-20
#[tokio::test]
async fn the_query_says_whether_the_trace_is_of_debugging_and_nothing_else() {
    let gitlab = GitLab::new(|_| answer("202 Accepted"));
    let client = gitlab.client("glrt-runner");
    for (debug, query) in [(false, "debug_trace=false"), (true, "debug_trace=true")] {
        patch(&client, debug, 0, TRACE).await;
        let request = &gitlab.requests()[0];
        assert_eq!(request.path, format!("/api/v4/jobs/1/trace?{query}"));
    }
}
