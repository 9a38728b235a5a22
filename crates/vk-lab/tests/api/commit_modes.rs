//! Section 7 and section 10's commit modes: what a 201 commits to, of three GitLabs.

use serde_json::{Value, json};

use crate::lab::{Lab, hello};

fn of(mode: &str) -> Lab {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "commit_mode": mode}));
    lab
}

/// Takes a job as a runner that says `two_phase_job_commit`: id and token.
fn take_uncommitted(lab: &Lab) -> (u64, String) {
    lab.trigger(&hello());
    let mut ask = lab.ask("");
    ask["info"]["features"]["two_phase_job_commit"] = true.into();
    let answer = lab.post("/jobs/request", &ask);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let job = answer.json();
    (
        job["id"].as_u64().unwrap(),
        job["token"].as_str().unwrap().to_owned(),
    )
}

fn advance(lab: &Lab, secs: u64) {
    lab.admin(&json!({"cmd": "advance", "secs": secs}));
}

#[test]
fn modern_ignores_two_phases_and_refuses_pending() {
    let lab = of("modern");
    let (id, token) = take_uncommitted(&lab);
    assert_eq!(lab.status(id), "running");
    let answer = lab.finish(id, &token, "pending");
    assert_eq!((answer.status, answer.text().as_str()), (400, "400"));
    assert_eq!(lab.status(id), "running");
}

#[test]
fn an_uncommitted_job_is_pending_out_of_the_queue_and_of_no_manager() {
    let lab = of("ack-18.5");
    let (id, token) = take_uncommitted(&lab);
    let job = lab.job(id);
    assert_eq!(
        (&job["status"], &job["manager"]),
        (&json!("pending"), &Value::Null)
    );
    assert_eq!(job["started_ms"], Value::Null);
    assert_eq!(lab.request("").status, 204, "no other request gets it");
    let keep = lab.finish(id, &token, "pending");
    assert_eq!(
        (keep.status, keep.header("Job-Status")),
        (200, Some("pending"))
    );
    let commit = lab.finish(id, &token, "running");
    assert_eq!(
        (commit.status, commit.header("Job-Status")),
        (200, Some("running"))
    );
    let job = lab.job(id);
    assert_eq!(
        (&job["status"], &job["manager"]),
        (&json!("running"), &json!("s_1"))
    );
    assert_eq!(lab.finish(id, &token, "pending").status, 400, "it runs now");
    assert_eq!(lab.finish(id, &token, "success").status, 200);
    assert_eq!(lab.job(id)["handed_out"], 1);
    assert!(lab.broken().is_empty());
}

#[test]
fn a_final_state_of_an_uncommitted_job_is_refused_and_commit_then_fail_works() {
    let lab = of("ack-18.5");
    let (id, token) = take_uncommitted(&lab);
    for state in ["failed", "success", "nonsense"] {
        assert_eq!(lab.finish(id, &token, state).status, 400, "{state}");
    }
    assert_eq!(
        lab.put(id, &json!({"token": token})).status,
        400,
        "no state"
    );
    assert_eq!(lab.status(id), "pending");
    assert_eq!(lab.finish(id, "glcbt-wrong", "running").status, 403);
    lab.finish(id, &token, "running");
    assert_eq!(lab.finish(id, &token, "failed").status, 200);
    assert_eq!(lab.status(id), "failed");
}

#[test]
fn two_minutes_after_the_last_sign_of_life_it_is_refused_then_dropped_and_made_anew() {
    let lab = of("ack-18.5");
    let (id, token) = take_uncommitted(&lab);
    advance(&lab, 110);
    assert_eq!(lab.finish(id, &token, "pending").status, 200);
    advance(&lab, 110);
    assert_eq!(
        lab.status(id),
        "pending",
        "the keep-alive counts from itself"
    );
    advance(&lab, 11);
    let late = lab.finish(id, &token, "running");
    assert_eq!(
        (late.status, late.header("Job-Status")),
        (403, Some("pending"))
    );
    assert!(late.text().contains("Job is not processing on runner"));
    // Looked for at 120 s and every 30 s: gone at 230 s, found at 240 s.
    advance(&lab, 9);
    let job = lab.job(id);
    assert_eq!(job["failure_reason"], "runner_provisioning_timeout");
    assert_eq!(job["superseded"], true);
    let again = lab.take();
    assert_ne!(
        (again["id"].as_u64(), again["token"].as_str()),
        (Some(id), Some(token.as_str()))
    );
    assert_eq!(lab.broken(), ["never_finished", "orphan"]);
}

#[test]
fn a_job_that_nobody_commits_comes_back_twice_and_then_stays_failed() {
    let lab = of("ack-18.5");
    take_uncommitted(&lab);
    for _ in 0..2 {
        advance(&lab, 150);
        let mut ask = lab.ask("");
        ask["info"]["features"]["two_phase_job_commit"] = true.into();
        assert_eq!(lab.post("/jobs/request", &ask).status, 201);
    }
    advance(&lab, 150);
    assert_eq!(lab.request("").status, 204, "the budget is two");
    assert_eq!(lab.status(3), "failed");
}

#[test]
fn without_the_feature_a_job_runs_at_once_in_each_mode() {
    for mode in ["modern", "ack-18.5", "legacy"] {
        let lab = of(mode);
        let (id, _) = lab.running();
        assert_eq!(lab.status(id), "running", "{mode}");
    }
}

#[test]
fn an_uncommitted_jobs_timeout_is_0_with_the_defect_of_the_time() {
    let lab = of("ack-18.5");
    let timeout = |lab: &Lab, feature: bool| {
        lab.trigger(&hello());
        let mut ask = lab.ask("");
        ask["info"]["features"]["two_phase_job_commit"] = feature.into();
        lab.post("/jobs/request", &ask).json()["runner_info"]["timeout"].clone()
    };
    assert_eq!(timeout(&lab, true), 3_600);
    lab.admin(&json!({"cmd": "set", "ack_timeout_zero": true}));
    assert_eq!(timeout(&lab, true), 0);
    assert_eq!(timeout(&lab, false), 3_600, "a committed job has its own");
}

#[test]
fn a_cancel_of_an_uncommitted_job_is_at_once() {
    let lab = of("ack-18.5");
    let (id, token) = take_uncommitted(&lab);
    lab.admin(&json!({"cmd": "cancel", "job": id}));
    assert_eq!(lab.status(id), "canceled");
    let answer = lab.finish(id, &token, "running");
    assert_eq!(
        (answer.status, answer.header("Job-Status")),
        (403, Some("canceled"))
    );
}

#[test]
fn a_patch_is_taken_while_a_job_waits_and_git_is_not_open() {
    let lab = of("ack-18.5");
    let (id, token) = take_uncommitted(&lab);
    let patch = lab.patch(id, &token, "0-4", "hello");
    assert_eq!(
        (patch.status, patch.header("Job-Status")),
        (202, Some("pending"))
    );
    let listed = lab.call(
        "GET",
        &format!("/api/v4/jobs/{id}/artifacts"),
        &[("JOB-TOKEN", &token)],
        "",
    );
    assert_eq!(listed.status, 401, "its token is of no running job");
}

#[test]
fn legacy_has_the_old_words_and_interval() {
    let lab = of("legacy");
    let (id, token) = lab.running();
    let patch = lab.patch(id, &token, "0-0", "x");
    assert_eq!(patch.header("X-GitLab-Trace-Update-Interval"), Some("30"));
    advance(&lab, 3_600);
    assert_eq!(lab.job(id)["failure_reason"], "stuck_or_timeout_failure");
    let answer = lab.finish(id, &token, "failed");
    assert!(
        answer.text().contains("Job is not running"),
        "{}",
        answer.text()
    );
    let ids = lab.trigger(&hello());
    let job = lab.take();
    let reasons = job["features"]["failure_reasons"].as_array().unwrap();
    for new in [
        "runner_configuration_error",
        "no_updates_running",
        "runner_provisioning_timeout",
    ] {
        assert!(!reasons.contains(&json!(new)), "{new}");
    }
    assert!(reasons.contains(&json!("runner_system_failure")));
    let body = json!({"token": job["token"], "state": "failed",
                      "failure_reason": "runner_external_dependency_failure"});
    assert_eq!(lab.put(ids[0], &body).status, 200);
    assert_eq!(lab.job(ids[0])["failure_reason"], "unknown_failure");
    let ids = lab.trigger(&hello());
    advance(&lab, 24 * 3_600);
    assert_eq!(
        lab.job(ids[0])["failure_reason"],
        "stuck_or_timeout_failure"
    );
}
