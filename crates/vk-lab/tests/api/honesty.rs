//! The promises that concern more than traces: uploads, rates, the time after a cancel.

use std::io::Write as _;

use serde_json::json;

use crate::lab::Lab;

fn upload(lab: &Lab, id: u64, token: &str, query: &str, content: &[u8]) -> u16 {
    let mut form =
        b"--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n".to_vec();
    form.extend_from_slice(content);
    form.extend_from_slice(b"\r\n--B--\r\n");
    let headers = [
        ("JOB-TOKEN", token),
        ("Content-Type", "multipart/form-data; boundary=B"),
    ];
    let path = format!("/api/v4/jobs/{id}/artifacts?{query}");
    lab.call("POST", &path, &headers, form).status
}

#[test]
fn a_secret_in_an_upload_is_told_packed_or_not_and_by_its_name_only() {
    let lab = Lab::with(
        &[],
        Some("[DEPLOY]\nvalue = 's3cret-value'\nmasked = true\n"),
    );
    let (id, token) = lab.running();
    lab.finish(id, &token, "running");
    let report = format!("<x token='{token}'/>");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(report.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let clean = upload(
        &lab,
        id,
        &token,
        "artifact_type=sast&artifact_format=raw",
        b"{}",
    );
    assert_eq!(clean, 201);
    let junit = "artifact_type=junit&artifact_format=gzip";
    assert_eq!(
        upload(&lab, id, &token, junit, &gzip),
        201,
        "GitLab takes it"
    );
    let raw = "artifact_type=dast&artifact_format=raw";
    assert_eq!(upload(&lab, id, &token, raw, b"a s3cret-value"), 201);
    lab.finish(id, &token, "success");
    assert_eq!(lab.broken(), ["secret_in_upload", "secret_in_upload"]);
    let shown = lab.admin(&json!({"cmd": "invariants"})).to_string();
    assert!(shown.contains("DEPLOY") && shown.contains("CI_JOB_TOKEN") && shown.contains("junit"));
    assert!(!shown.contains("s3cret-value") && !shown.contains(&token));
}

#[test]
fn a_job_that_takes_too_long_after_its_runner_was_told_of_a_cancel_is_told() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "cancel_within_ms": 10_000}));
    for (secs, slow) in [(5, false), (11, true)] {
        let (id, token) = lab.running();
        lab.admin(&json!({"cmd": "cancel", "job": id}));
        // Not told yet: that is not the runner's time.
        lab.admin(&json!({"cmd": "advance", "secs": 20}));
        assert_eq!(
            lab.patch(id, &token, "0-0", "a").header("Job-Status"),
            Some("canceling")
        );
        lab.admin(&json!({"cmd": "advance", "secs": secs}));
        lab.patch(id, &token, "1-1", "b");
        lab.finish(id, &token, "failed");
        assert_eq!(lab.broken() == ["cancel_too_slow"], slow, "{secs} s");
        let after = lab.job(id)["output_after_cancel_ms"].as_u64().unwrap();
        assert!(
            after >= secs * 1_000 && after < secs * 1_000 + 5_000,
            "{after}"
        );
    }
}

#[test]
fn a_limit_of_one_type_of_artifact_is_the_smaller_one() {
    let lab = Lab::start();
    let limits = json!({"sast": 10, "dast": 0});
    lab.admin(&json!({"cmd": "set", "artifact_limit": 100, "artifact_limits": limits}));
    let (id, token) = lab.running();
    for (kind, size, status) in [
        ("sast", 11, 413),
        ("sast", 10, 201),
        ("dast", 101, 413),
        ("dast", 100, 201),
    ] {
        let query = format!("artifact_type={kind}&artifact_format=raw");
        let sent = upload(&lab, id, &token, &query, &vec![b'a'; size]);
        assert_eq!(sent, status, "{kind} of {size}");
    }
}

#[test]
fn an_erased_dependency_fails_the_job_that_needs_it() {
    let lab = Lab::start();
    let ids = lab.trigger(&json!({"stages": ["a", "b"], "jobs": [
        {"name": "one", "stage": "a", "script": ["x"], "artifacts": {"paths": ["p"]}},
        {"name": "two", "stage": "b", "script": ["x"], "retry": {"max": 2}}]}));
    let one = lab.take();
    let token = one["token"].as_str().unwrap();
    assert_eq!(upload(&lab, ids[0], token, "", b"x"), 201);
    lab.finish(ids[0], token, "success");
    lab.admin(&json!({"cmd": "erase", "job": ids[0]}));
    assert_eq!(lab.request("").status, 204);
    let job = lab.job(ids[1]);
    assert_eq!(job["failure_reason"], "missing_dependency_failure");
    assert_eq!(job["superseded"], false, "never retried by itself");
    lab.finish(ids[0], token, "success");
}
