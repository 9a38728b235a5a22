//! Sections 2.8 and 3: patches of a trace.

use std::io::Write as _;

use serde_json::json;

use crate::lab::Lab;
use crate::raw::{receive, send};

#[test]
fn every_answer_to_a_patch_is_the_pages() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let rows = [
        ("0-4", "hello", 202, "0-5"),
        ("4-5", "oo", 416, "0-5"),
        ("9-10", "x", 416, "0-5"),
        ("5-5", "", 202, "0-5"),
        ("5-99/7", " you", 202, "0-9"),
        ("bytes 9-10", "x", 416, "0-9"),
        ("9", "!", 202, "0-10"),
    ];
    for (range, body, status, stored) in rows {
        let answer = lab.patch(id, &token, range, body);
        assert_eq!(
            (answer.status, answer.header("Range")),
            (status, Some(stored)),
            "{range}"
        );
        let accepted = status == 202;
        assert_eq!(
            answer.header("Job-Status"),
            accepted.then_some("running"),
            "{range}"
        );
        let interval = answer.header("X-GitLab-Trace-Update-Interval");
        assert_eq!(interval, accepted.then_some("60"), "{range}");
    }
    assert_eq!(lab.trace(id), "hello you!");
}

#[test]
fn a_patch_without_range_token_or_job_is_refused() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let path = format!("/api/v4/jobs/{id}/trace");
    let missing = lab.call("PATCH", &path, &[("JOB-TOKEN", token.as_str())], "x");
    assert_eq!(missing.status, 400);
    let rows = [(id, "glcbt-wrong"), (9_999, token.as_str()), (id, "")];
    for (id, token) in rows {
        let answer = lab.patch(id, token, "0-0", "x");
        assert_eq!((answer.status, answer.header("Job-Status")), (403, None));
    }
    let by_query = lab.call(
        "PATCH",
        &format!("{path}?token={token}"),
        &[("Content-Range", "0-0")],
        "x",
    );
    assert_eq!(
        by_query.status, 202,
        "the parameter counts as the header does"
    );
}

#[test]
fn a_second_writer_gets_409_and_a_writer_that_goes_away_frees_the_trace() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let path = format!("/api/v4/jobs/{id}/trace");
    let headers = [
        ("JOB-TOKEN", token.as_str()),
        ("Content-Range", "0-9"),
        ("Content-Length", "10"),
        ("Expect", "100-continue"),
    ];
    let mut first = send(lab.addr, "PATCH", &path, &headers, b"");
    // The server asks for the body once it holds the trace for this writer.
    let mut go_on = [0_u8; 25];
    std::io::Read::read_exact(&mut first, &mut go_on).unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100"));
    assert_eq!(lab.patch(id, &token, "0-4", "other").status, 409);
    first.write_all(b"0123456789").unwrap();
    assert_eq!(receive(&mut first).unwrap().status, 202);
    assert_eq!(lab.patch(id, &token, "10-10", "x").status, 202);

    let mut gone = send(lab.addr, "PATCH", &path, &headers, b"");
    std::io::Read::read_exact(&mut gone, &mut go_on).unwrap();
    drop(gone);
    let freed = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        lab.patch(id, &token, "11-11", "y").status == 202
    });
    assert!(freed);
}

#[test]
fn the_interval_is_3_while_someone_watches() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    lab.patch(id, &token, "0-0", "a");
    let mut watcher = std::process::Command::new(crate::lab::program())
        .args(["trace", "--follow", "--admin"])
        .arg(lab.admin_socket())
        .arg(id.to_string())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0_u8; 1];
    std::io::Read::read_exact(watcher.stdout.as_mut().unwrap(), &mut first).unwrap();
    let answer = lab.patch(id, &token, "1-1", "b");
    assert_eq!(answer.header("X-GitLab-Trace-Update-Interval"), Some("3"));
    lab.finish(id, &token, "success");
    let out = watcher.wait_with_output().unwrap();
    assert_eq!(out.stdout, b"b", "and it follows to the end");
    lab.admin(&json!({"cmd": "advance", "secs": 11}));
}

#[test]
fn a_trace_over_the_limit_ends_the_job_and_keeps_nothing_of_the_patch() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "trace_limit_mib": 1}));
    let (id, token) = lab.running();
    let near = vec![b'a'; (1 << 20) - 1];
    assert_eq!(lab.patch(id, &token, "0-1048574", &near).status, 202);
    let over = lab.patch(id, &token, "1048575-1048575", "b");
    assert_eq!((over.status, over.header("Job-Status")), (403, None));
    assert_eq!(over.json(), json!({"message": "403 Forbidden"}));
    let job = lab.job(id);
    assert_eq!(job["failure_reason"], "trace_size_exceeded");
    assert_eq!(job["trace_size"], (1 << 20) - 1);
    let after = lab.finish(id, &token, "failed");
    assert_eq!(
        (after.status, after.header("Job-Status")),
        (403, Some("failed"))
    );
}

#[test]
fn a_body_larger_than_the_limit_is_over_it() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "trace_limit_mib": 1}));
    let (id, token) = lab.running();
    let answer = lab.patch(id, &token, "0-1", vec![b'a'; (1 << 20) + 1]);
    assert_eq!(answer.status, 403);
    assert_eq!(lab.job(id)["failure_reason"], "trace_size_exceeded");
}

#[test]
fn tokens_are_overwritten_in_place_and_that_is_reported() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let text = format!("a {token} b {} c", lab.token);
    let answer = lab.patch(id, &token, "0-1", &text);
    let size = format!("0-{}", text.len());
    assert_eq!(answer.header("Range"), Some(size.as_str()));
    let (x, y) = ("x".repeat(token.len()), "x".repeat(lab.token.len()));
    assert_eq!(lab.trace(id), format!("a {x} b {y} c"));
    lab.finish(id, &token, "success");
    assert_eq!(lab.broken(), ["masked_in_place", "masked_in_place"]);
}

#[test]
fn the_debug_flag_counts_on_the_first_patch_only() {
    let lab = Lab::start();
    for (start, want) in [("0-0", true), ("1-1", false)] {
        let (id, token) = lab.running();
        if start == "1-1" {
            lab.patch(id, &token, "0-0", "a");
        }
        let headers = [("JOB-TOKEN", token.as_str()), ("Content-Range", start)];
        let path = format!("/api/v4/jobs/{id}/trace?debug_trace=true");
        assert_eq!(lab.call("PATCH", &path, &headers, "x").status, 202);
        assert_eq!(lab.job(id)["debug_trace"], want);
    }
}

#[test]
fn a_trace_that_was_forgotten_is_asked_for_from_where_it_ends() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    lab.patch(id, &token, "0-4", "hello");
    for (keep, range) in [(3, "0-3"), (0, "0-0")] {
        lab.admin(&json!({"cmd": "forget_trace", "job": id, "keep": keep}));
        let answer = lab.patch(id, &token, "5-5", "!");
        assert_eq!((answer.status, answer.header("Range")), (416, Some(range)));
    }
    assert_eq!(lab.patch(id, &token, "0-5", "hello!").status, 202);
}
