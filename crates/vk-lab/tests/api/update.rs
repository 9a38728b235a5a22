//! Sections 2.7 and 4: updates; section 1's order of refusals; section 5's reapers.

use serde_json::json;

use crate::lab::Lab;

#[test]
fn every_answer_to_an_update_is_the_pages() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let rows = [
        (json!({"state": "running"}), 400),
        (json!({"token": "", "state": "running"}), 400),
        (json!({"token": token, "state": "pending"}), 400),
        (json!({"token": token, "state": "canceled"}), 400),
        (json!({"token": "glcbt-wrong", "state": "running"}), 403),
        (json!({"token": token, "state": "running"}), 200),
        (
            json!({"token": token, "state": "running", "unknown": 1}),
            200,
        ),
        (json!({"token": token}), 200),
        (json!({"token": token, "state": "success"}), 200),
        (json!({"token": token, "state": "success"}), 403),
    ];
    for (body, status) in rows {
        let answer = lab.put(id, &body);
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        if status == 200 {
            assert_eq!(answer.text(), "200");
            assert!(answer.header("Job-Status").is_some());
            assert_eq!(answer.header("X-GitLab-Trace-Update-Interval"), None);
        }
    }
    // The header alone is not enough.
    let headers = [("JOB-TOKEN", token.as_str())];
    let body = json!({"state": "running"}).to_string();
    assert_eq!(
        lab.call("PUT", &format!("/api/v4/jobs/{id}"), &headers, body)
            .status,
        400
    );
    assert_eq!(
        lab.put(9_999, &json!({"token": token, "state": "running"}))
            .status,
        403
    );
}

#[test]
fn after_the_final_200_every_call_is_403_with_the_status() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    assert_eq!(
        lab.finish(id, &token, "success").header("Job-Status"),
        Some("success")
    );
    let put = lab.finish(id, &token, "success");
    let patch = lab.patch(id, &token, "0-1", "x");
    let upload = lab.call(
        "POST",
        &format!("/api/v4/jobs/{id}/artifacts"),
        &[("JOB-TOKEN", token.as_str())],
        "",
    );
    for answer in [put, patch, upload] {
        assert_eq!(
            (answer.status, answer.header("Job-Status")),
            (403, Some("success"))
        );
        assert_eq!(
            answer.json(),
            json!({"message": "403 Forbidden - Job is not processing on runner"})
        );
    }
}

#[test]
fn a_failure_keeps_reason_and_exit_code_and_an_unknown_reason_is_unknown() {
    let lab = Lab::start();
    let rows = [
        (
            json!({"failure_reason": "script_failure", "exit_code": 42}),
            "script_failure",
        ),
        (
            json!({"failure_reason": "runner_interrupted", "exit_code": 42}),
            "runner_interrupted",
        ),
        (
            json!({"failure_reason": "image_pull_failure", "exit_code": 42}),
            "unknown_failure",
        ),
        (json!({"exit_code": 42}), "unknown_failure"),
    ];
    for (mut body, reason) in rows {
        let (id, token) = lab.running();
        body["token"] = token.into();
        body["state"] = "failed".into();
        assert_eq!(lab.put(id, &body).header("Job-Status"), Some("failed"));
        let job = lab.job(id);
        assert_eq!(
            (&job["failure_reason"], &job["exit_code"]),
            (&json!(reason), &json!(42))
        );
    }
}

#[test]
fn exit_codes_allow_a_failure() {
    let lab = Lab::start();
    for (code, allowed) in [(3, true), (4, false)] {
        let ids = lab.trigger(&json!({"jobs": [{"name": "a", "script": ["x"],
            "allow_failure": {"exit_codes": [3]}}]}));
        let job = lab.take();
        let body = json!({"token": job["token"], "state": "failed", "exit_code": code,
                          "failure_reason": "script_failure"});
        lab.put(ids[0], &body);
        assert_eq!(
            lab.job(ids[0])["allow_failure"],
            allowed,
            "exit code {code}"
        );
    }
}

#[test]
fn a_token_of_another_job_is_refused_without_a_status() {
    let lab = Lab::start();
    let (one, _) = lab.running();
    let (_, other) = lab.running();
    let answer = lab.finish(one, &other, "running");
    assert_eq!((answer.status, answer.header("Job-Status")), (403, None));
}

#[test]
fn an_expired_job_token_fails_the_job() {
    let lab = Lab::start();
    for path in ["put", "patch"] {
        let (id, token) = lab.running();
        lab.put(id, &json!({"token": token, "state": "running"}));
        // 3,600 s of the job and 5 min; the reaper comes at 15 min.
        lab.admin(&json!({"cmd": "advance", "secs": 2_000}));
        lab.put(id, &json!({"token": token, "state": "running"}));
        lab.admin(&json!({"cmd": "advance", "secs": 1_901}));
        let answer = match path {
            "put" => lab.finish(id, &token, "running"),
            _ => lab.patch(id, &token, "0-1", "x"),
        };
        assert_eq!(
            (answer.status, answer.header("Job-Status")),
            (403, Some("failed")),
            "{path}"
        );
        assert!(answer.text().contains("Job token has expired"));
        assert_eq!(lab.job(id)["failure_reason"], "job_token_expired");
    }
}

#[test]
fn an_erased_job_and_a_deleted_project_are_said_so() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    lab.admin(&json!({"cmd": "erase", "job": id}));
    let answer = lab.finish(id, &token, "running");
    assert_eq!(
        answer.json(),
        json!({"message": "403 Forbidden - Job has been erased!"})
    );
    let (id, token) = lab.running();
    lab.admin(&json!({"cmd": "delete_project", "project": "acme/web"}));
    let answer = lab.finish(id, &token, "running");
    assert_eq!(
        answer.json(),
        json!({"message": "403 Forbidden - Project has been deleted!"})
    );
}

#[test]
fn a_silent_job_is_reaped_and_one_that_speaks_is_not() {
    let lab = Lab::start();
    let (silent, _) = lab.running();
    let (speaks, token) = lab.running();
    lab.admin(&json!({"cmd": "advance", "secs": 1_800}));
    lab.put(speaks, &json!({"token": token, "state": "running"}));
    lab.admin(&json!({"cmd": "advance", "secs": 1_801}));
    assert_eq!(lab.job(silent)["failure_reason"], "no_updates_running");
    assert_eq!(lab.status(speaks), "running");
    // Its own time: 3,600 s and 15 min.
    lab.put(speaks, &json!({"token": token, "state": "running"}));
    lab.admin(&json!({"cmd": "advance", "secs": 900}));
    assert_eq!(lab.job(speaks)["failure_reason"], "server_timeout_running");
}

#[test]
fn a_live_trace_answers_202_until_it_is_stored() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "live_trace": true, "store_delay_ms": 5_000}));
    let (id, token) = lab.running();
    lab.patch(id, &token, "0-4", "hello");
    let checksum = format!("crc32:{:08x}", crc32fast::hash(b"hello"));
    let body = json!({"token": token, "state": "success",
                      "output": {"checksum": checksum, "bytesize": 5}});
    let first = lab.put(id, &body);
    assert_eq!(
        (first.status, first.header("Job-Status")),
        (202, Some("running"))
    );
    assert_eq!(first.header("X-GitLab-Trace-Update-Interval"), Some("1"));
    lab.admin(&json!({"cmd": "advance", "secs": 4}));
    let second = lab.put(id, &body);
    assert_eq!(second.header("X-GitLab-Trace-Update-Interval"), Some("2"));
    lab.admin(&json!({"cmd": "advance", "secs": 4}));
    let third = lab.put(id, &body);
    assert_eq!(
        (third.status, third.header("Job-Status")),
        (200, Some("success"))
    );
    assert!(lab.broken().is_empty(), "{:?}", lab.broken());
}

#[test]
fn a_trace_that_is_never_stored_is_given_up_after_five_minutes() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "live_trace": true, "store_delay_ms": 9_000_000}));
    let (id, token) = lab.running();
    let body = json!({"token": token, "state": "success",
                      "output": {"checksum": "crc32:00000000", "bytesize": 0}});
    assert_eq!(lab.put(id, &body).status, 202);
    lab.admin(&json!({"cmd": "advance", "secs": 299}));
    let late = lab.put(id, &body);
    assert_eq!(
        (late.status, late.header("X-GitLab-Trace-Update-Interval")),
        (202, Some("64"))
    );
    lab.admin(&json!({"cmd": "advance", "secs": 2}));
    assert_eq!(lab.put(id, &body).status, 200);
}

#[test]
fn a_final_update_waits_while_somebody_writes_the_trace() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "live_trace": true, "store_delay_ms": 0}));
    let (id, token) = lab.running();
    let headers = [
        ("JOB-TOKEN", token.as_str()),
        ("Content-Range", "0-4"),
        ("Content-Length", "5"),
    ];
    let path = format!("/api/v4/jobs/{id}/trace");
    let mut half = crate::raw::send(lab.addr, "PATCH", &path, &headers, b"he");
    let locked = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        lab.patch(id, &token, "0-0", "").status == 409
    });
    assert!(locked);
    let checksum = format!("crc32:{:08x}", crc32fast::hash(b"hello"));
    let body = json!({"token": token, "state": "success",
                      "output": {"checksum": checksum, "bytesize": 5}});
    assert_eq!(lab.put(id, &body).status, 202);
    std::io::Write::write_all(&mut half, b"llo").unwrap();
    assert_eq!(crate::raw::receive(&mut half).unwrap().status, 202);
    assert_eq!(lab.put(id, &body).status, 200);
    assert!(lab.broken().is_empty(), "{:?}", lab.broken());
}
