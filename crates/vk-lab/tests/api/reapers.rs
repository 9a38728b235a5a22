//! Section 5: what ends a job that nobody ends, on a clock that is moved.

use serde_json::json;

use crate::lab::{Lab, hello};

fn advance(lab: &Lab, secs: u64) {
    lab.admin(&json!({"cmd": "advance", "secs": secs}));
}

#[test]
fn a_silent_job_dies_after_half_an_hour_with_the_flag() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "lower_stuck_timeouts": true}));
    let (running, _) = lab.running();
    let (canceling, _) = lab.running();
    lab.admin(&json!({"cmd": "cancel", "job": canceling}));
    advance(&lab, 1_799);
    assert_eq!(lab.status(running), "running");
    advance(&lab, 1);
    assert_eq!(lab.job(running)["failure_reason"], "no_updates_running");
    let job = lab.job(canceling);
    assert_eq!(
        (&job["status"], &job["failure_reason"]),
        (&json!("canceled"), &json!("no_updates_canceling"))
    );
}

#[test]
fn an_update_within_a_quarter_of_an_hour_moves_nothing() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    advance(&lab, 899);
    lab.finish(id, &token, "running");
    advance(&lab, 3_600 - 899);
    assert_eq!(
        lab.job(id)["failure_reason"],
        "no_updates_running",
        "it counted from the start"
    );
    let (id, token) = lab.running();
    advance(&lab, 900);
    lab.patch(id, &token, "0-0", "");
    advance(&lab, 3_599);
    assert_eq!(lab.status(id), "running", "an empty patch is contact");
}

#[test]
fn pending_jobs_die_after_a_day_with_a_runner_online() {
    let lab = Lab::start();
    let ids = lab.trigger(&hello());
    lab.admin(&json!({"cmd": "runner", "paused": true}));
    for _ in 0..23 {
        lab.request("");
        advance(&lab, 3_600);
    }
    lab.request("");
    assert_eq!(lab.status(ids[0]), "pending");
    advance(&lab, 3_600);
    assert_eq!(
        lab.job(ids[0])["failure_reason"],
        "stuck_pending_with_matching_runners"
    );
}

#[test]
fn the_hourly_task_looks_at_whole_hours_only() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "sweep_every_secs": 3_600}));
    let now = lab.admin(&json!({"cmd": "skew", "secs": 0}))["now_ms"]
        .as_u64()
        .unwrap();
    // To ten minutes after a whole hour.
    advance(&lab, 3_600 - (now / 1_000) % 3_600 + 600);
    let ids = lab.trigger(&json!({"jobs": [{"name": "a", "script": ["x"], "timeout": 7_200}]}));
    lab.take();
    advance(&lab, 3_598);
    assert_eq!(
        lab.status(ids[0]),
        "running",
        "a whole hour came, and it was not silent for one"
    );
    advance(&lab, 1_202);
    assert_eq!(lab.status(ids[0]), "running", "overdue, and nobody looks");
    advance(&lab, 1_801);
    assert_eq!(lab.job(ids[0])["failure_reason"], "no_updates_running");
}

#[test]
fn a_runners_longest_timeout_is_the_jobs_where_it_is_smaller() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "runner", "maximum_timeout_secs": 600}));
    lab.trigger(&hello());
    let job = lab.take();
    assert_eq!(job["runner_info"]["timeout"], 600);
    let (id, token) = (job["id"].as_u64().unwrap(), job["token"].as_str().unwrap());
    advance(&lab, 899);
    assert_eq!(lab.finish(id, token, "running").status, 200);
    advance(&lab, 1);
    let answer = lab.finish(id, token, "running");
    assert_eq!(
        (answer.status, answer.header("Job-Status")),
        (403, Some("failed"))
    );
    assert_eq!(lab.job(id)["failure_reason"], "job_token_expired");
    lab.admin(&json!({"cmd": "runner", "maximum_timeout_secs": 7_200}));
    lab.trigger(&hello());
    assert_eq!(lab.take()["runner_info"]["timeout"], 3_600);
}

#[test]
fn a_reaped_job_is_made_anew_only_where_retry_says_so_by_any_of_its_names() {
    let lab = Lab::start();
    for (when, again) in [
        (json!(["stuck_or_timeout_failure"]), true),
        (json!(["no_updates_running"]), true),
        (json!(["script_failure"]), false),
    ] {
        lab.trigger(&json!({"jobs": [{"name": "a", "script": ["x"],
            "retry": {"max": 1, "when": when}}]}));
        lab.take();
        advance(&lab, 3_600);
        let status = lab.request("").status;
        assert_eq!(status, if again { 201 } else { 204 }, "{when}");
    }
}

#[test]
fn a_runner_that_does_not_poll_and_heartbeats_keeps_its_jobs() {
    let lab = Lab::start();
    lab.request("");
    let ids = lab.trigger(&hello());
    for _ in 0..24 {
        advance(&lab, 300);
        lab.post(
            "/runners/verify",
            &json!({"token": lab.token, "system_id": "s_1"}),
        );
    }
    assert_eq!(lab.status(ids[0]), "pending", "two hours at capacity 0");
    let status = lab.admin(&json!({"cmd": "status"}));
    let manager = &status["runner"]["managers"][0];
    assert_eq!(manager["contacts_ms"].as_array().unwrap().len(), 25);
    let silent = manager["longest_silence_ms"].as_u64().unwrap();
    assert!((300_000..330_000).contains(&silent), "{silent}");
}

#[test]
fn a_queue_value_is_forgotten_after_an_hour() {
    let lab = Lab::start();
    let value =
        |answer: crate::raw::Answer| answer.header("X-GitLab-Last-Update").unwrap().to_owned();
    let first = value(lab.request(""));
    assert_eq!(value(lab.request("")), first);
    advance(&lab, 3_601);
    assert_ne!(value(lab.request(&first)), first);
}
