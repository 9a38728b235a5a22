//! Section 8: rate limits, and the 429 of a migration.

use serde_json::json;

use crate::lab::Lab;

fn limit(lab: &Lab, request: u32, trace: u32, job: u32) {
    let limits = json!({"request": request, "trace": trace, "job": job});
    lab.admin(&json!({"cmd": "set", "rate_limits": limits}));
    // The rest of a whole minute is ahead: no window ends in the middle of a test.
    let now = lab.admin(&json!({"cmd": "skew", "secs": 0}))["now_ms"]
        .as_u64()
        .unwrap();
    lab.admin(&json!({"cmd": "skew", "secs": 60 - (now / 1_000) % 60}));
}

#[test]
fn job_requests_are_counted_by_runner_token_for_all_managers_together() {
    let lab = Lab::start();
    limit(&lab, 3, 0, 0);
    for at in 0..3 {
        let mut ask = lab.ask("");
        ask["system_id"] = format!("s_{at}").into();
        assert_eq!(lab.post("/jobs/request", &ask).status, 204);
    }
    lab.trigger(&crate::lab::hello());
    let over = lab.request("");
    assert_eq!((over.status, over.header("Retry-After")), (429, Some("60")));
    let text = "This endpoint has been requested too many times. Try again later.";
    assert_eq!(over.json(), json!({"message": {"error": text}}));
    assert_eq!(over.header("X-GitLab-Last-Update"), None);
    assert_eq!(
        lab.post("/runners/verify", &json!({"token": lab.token}))
            .status,
        200
    );
    assert_eq!(lab.broken(), ["rate_exceeded"], "once a window");
    lab.request("");
    assert_eq!(lab.broken(), ["rate_exceeded"]);
    lab.admin(&json!({"cmd": "advance", "secs": 60}));
    assert_eq!(lab.request("").status, 201, "a new minute");
}

#[test]
fn patches_and_other_calls_of_a_job_have_limits_of_their_own() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    limit(&lab, 0, 2, 3);
    assert_eq!(lab.patch(id, &token, "0-0", "a").status, 202);
    assert_eq!(lab.patch(id, &token, "1-1", "b").status, 202);
    let over = lab.patch(id, &token, "2-2", "c");
    assert_eq!((over.status, over.header("Retry-After")), (429, Some("60")));
    assert_eq!(over.header("Range"), None);
    assert_eq!(lab.trace(id), "ab", "nothing of it is stored");
    assert_eq!(lab.finish(id, &token, "running").status, 200);
    // An upload is two: its authorization and itself.
    let path = format!("/api/v4/jobs/{id}/artifacts");
    let upload = || lab.call("POST", &path, &[("JOB-TOKEN", token.as_str())], "");
    assert_eq!(upload().status, 400, "no form, but let through");
    assert_eq!(upload().status, 429);
    assert_eq!(lab.finish(id, &token, "success").status, 429);
    assert_eq!(lab.status(id), "running");
    // Another job has its own count.
    let (other, token) = lab.running();
    assert_eq!(lab.patch(other, &token, "0-0", "a").status, 202);
}

#[test]
fn the_429_of_18_5_says_no_time_and_older_ones_have_no_limit() {
    for (mode, status) in [("ack-18.5", 429), ("legacy", 204)] {
        let lab = Lab::start();
        lab.admin(&json!({"cmd": "set", "commit_mode": mode}));
        limit(&lab, 1, 0, 0);
        lab.request("");
        let second = lab.request("");
        assert_eq!(
            (second.status, second.header("Retry-After")),
            (status, None)
        );
    }
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "rate_limit_retry_after": false}));
    limit(&lab, 1, 0, 0);
    lab.request("");
    assert_eq!(lab.request("").header("Retry-After"), None);
}

#[test]
fn the_limits_are_gitlabs_unless_they_are_set() {
    let lab = Lab::start();
    let all = lab.admin(&json!({"cmd": "set"}));
    let want = json!({"request": 2_000, "trace": 200, "job": 200});
    assert_eq!(all["settings"]["rate_limits"], want);
    // Others of a group stay.
    let all = lab.admin(&json!({"cmd": "set", "rate_limits": {"trace": 7}}));
    let want = json!({"request": 2_000, "trace": 7, "job": 200});
    assert_eq!(all["settings"]["rate_limits"], want);
}

#[test]
fn a_migration_is_answered_before_anything_else_on_every_endpoint() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    lab.admin(&json!({"cmd": "set", "migrating": true}));
    let answers = [
        lab.request(""),
        lab.post("/runners/verify", &json!({})),
        lab.finish(id, "glcbt-wrong", "success"),
        lab.patch(id, &token, "0-0", "x"),
        lab.call("GET", &format!("/api/v4/jobs/{id}/artifacts"), &[], ""),
    ];
    for answer in answers {
        assert_eq!(
            (answer.status, answer.header("Retry-After")),
            (429, Some("60"))
        );
        assert!(answer.text().contains("Executing database migrations"));
    }
    lab.admin(&json!({"cmd": "set", "migrating": false}));
    assert_eq!(lab.trace(id), "");
    assert_eq!(lab.finish(id, &token, "success").status, 200);
}
