//! Section 6: cancelling.

use serde_json::json;

use crate::lab::{Lab, hello};

fn cancel(lab: &Lab, id: u64, force: bool) -> String {
    let answer = lab.admin(&json!({"cmd": "cancel", "job": id, "force": force}));
    answer["status"].as_str().unwrap().to_owned()
}

#[test]
fn a_graceful_cancel_lets_the_runner_write_on_and_ends_canceled() {
    let lab = Lab::start();
    for state in ["failed", "success"] {
        let (id, token) = lab.running();
        assert_eq!(cancel(&lab, id, false), "canceling");
        let patch = lab.patch(id, &token, "0-3", "tail");
        assert_eq!(
            (patch.status, patch.header("Job-Status")),
            (202, Some("canceling"))
        );
        let alive = lab.finish(id, &token, "running");
        assert_eq!(
            (alive.status, alive.header("Job-Status")),
            (200, Some("canceling"))
        );
        let end = lab.finish(id, &token, state);
        assert_eq!(
            (end.status, end.header("Job-Status")),
            (200, Some("canceled"))
        );
        assert_eq!(lab.trace(id), "tail");
    }
    assert!(lab.broken().is_empty());
}

#[test]
fn a_runner_that_cannot_cancel_gracefully_finds_403() {
    let lab = Lab::start();
    let ids = lab.trigger(&hello());
    let job = lab
        .post("/jobs/request", &json!({"token": lab.token}))
        .json();
    let token = job["token"].as_str().unwrap();
    assert_eq!(cancel(&lab, ids[0], false), "canceled");
    let patch = lab.patch(ids[0], token, "0-0", "x");
    assert_eq!(
        (patch.status, patch.header("Job-Status")),
        (403, Some("canceled"))
    );
}

#[test]
fn a_forced_cancel_ends_at_once_whatever_the_job_is_doing() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    assert_eq!(cancel(&lab, id, false), "canceling");
    assert_eq!(
        cancel(&lab, id, false),
        "canceling",
        "asked twice it is asked once"
    );
    assert_eq!(cancel(&lab, id, true), "canceled");
    let put = lab.finish(id, &token, "failed");
    assert_eq!(
        (put.status, put.header("Job-Status")),
        (403, Some("canceled"))
    );
    let (id, _) = lab.running();
    assert_eq!(cancel(&lab, id, true), "canceled");
}

#[test]
fn a_waiting_job_is_cancelled_without_a_runner_and_an_ended_one_stays() {
    let lab = Lab::start();
    let ids = lab.trigger(&hello());
    assert_eq!(cancel(&lab, ids[0], false), "canceled");
    assert_eq!(lab.request("").status, 204);
    let (id, token) = lab.running();
    lab.finish(id, &token, "success");
    assert_eq!(cancel(&lab, id, true), "success");
    let none = lab.try_admin(&json!({"cmd": "cancel", "job": 999}));
    assert_eq!(none["error"]["code"], "not_found");
}

#[test]
fn a_cancel_in_the_202_loop_ends_canceled() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "live_trace": true, "store_delay_ms": 1_000}));
    let (id, token) = lab.running();
    let body = json!({"token": token, "state": "success",
                      "output": {"checksum": "crc32:00000000", "bytesize": 0}});
    assert_eq!(lab.put(id, &body).status, 202);
    assert_eq!(cancel(&lab, id, false), "canceling");
    lab.admin(&json!({"cmd": "advance", "secs": 2}));
    let end = lab.put(id, &body);
    assert_eq!(
        (end.status, end.header("Job-Status")),
        (200, Some("canceled"))
    );
}

#[test]
fn a_runner_that_forgets_a_canceling_job_leaves_it_to_the_reaper() {
    let lab = Lab::start();
    let (id, _) = lab.running();
    cancel(&lab, id, false);
    lab.admin(&json!({"cmd": "advance", "secs": 3_600}));
    assert_eq!(lab.job(id)["failure_reason"], "no_updates_canceling");
    assert_eq!(lab.status(id), "canceled");
}

#[test]
fn when_a_runner_was_first_told_of_a_cancel_is_noted() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let told = |status: &str| lab.job(id)["told_ms"][status].as_u64();
    lab.patch(id, &token, "0-3", "some");
    assert!(told("running").is_some());
    cancel(&lab, id, false);
    assert_eq!(told("canceling"), None, "cancelled, and nobody was told");
    lab.patch(id, &token, "4-4", "");
    let first = told("canceling").unwrap();
    lab.finish(id, &token, "running");
    assert_eq!(told("canceling"), Some(first), "the first answer counts");
    cancel(&lab, id, true);
    lab.patch(id, &token, "4-7", "more");
    assert!(told("canceled").unwrap() >= first);
}
