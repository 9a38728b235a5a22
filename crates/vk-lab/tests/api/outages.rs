//! Outages: storms, a restart, a server restored from a backup, and clocks that disagree.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::lab::{Lab, hello};
use crate::raw::{receive, send, try_call};

#[test]
fn a_storm_hits_every_call_until_its_time_is_over() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    lab.admin(&json!({"cmd": "inject", "on": "any", "action": {"status": 503}, "for_secs": 60}));
    for _ in 0..3 {
        assert_eq!(lab.request("").status, 503);
        assert_eq!(lab.patch(id, &token, "0-0", "a").status, 503);
        assert_eq!(
            lab.post("/runners/verify", &json!({"token": lab.token}))
                .status,
            503
        );
    }
    lab.admin(&json!({"cmd": "advance", "secs": 60}));
    assert_eq!(lab.patch(id, &token, "0-0", "a").status, 202);
}

#[test]
fn a_restart_breaks_held_calls_and_bodies_and_keeps_what_is_known() {
    let lab = Lab::with(&["--long-poll-ns", "50000000000"], None);
    let (id, token) = lab.running();
    lab.patch(id, &token, "0-4", "hello");
    let value = lab
        .request("")
        .header("X-GitLab-Last-Update")
        .unwrap()
        .to_owned();
    let kind = [("Content-Type", "application/json")];
    let body = lab.ask(&value).to_string();
    let mut held = send(
        lab.addr,
        "POST",
        "/api/v4/jobs/request",
        &kind,
        body.as_bytes(),
    );
    let headers = [
        ("JOB-TOKEN", token.as_str()),
        ("Content-Range", "5-9"),
        ("Content-Length", "5"),
    ];
    let mut half = send(
        lab.addr,
        "PATCH",
        &format!("/api/v4/jobs/{id}/trace"),
        &headers,
        b" th",
    );
    // The held patch has its lock: another one is a conflict.
    let locked = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        lab.patch(id, &token, "5-5", "").status == 409
    });
    assert!(locked);
    lab.admin(&json!({"cmd": "restart", "down_ms": 400}));
    assert!(receive(&mut held).is_none() && receive(&mut half).is_none());
    assert!(
        try_call(lab.addr, "GET", "/api/v4/nope", &[], b"").is_none(),
        "down"
    );
    let up = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        try_call(lab.addr, "GET", "/api/v4/nope", &[], b"").is_some()
    });
    assert!(up);
    let answer = lab.patch(id, &token, "5-9", " ther");
    assert_eq!((answer.status, answer.header("Range")), (202, Some("0-10")));
    lab.finish(id, &token, "success");
    assert!(
        lab.broken().is_empty(),
        "the caller gave nothing up: {:?}",
        lab.broken()
    );
    assert!(TcpStream::connect(lab.addr).is_ok());
}

#[test]
fn a_server_restored_from_a_backup_has_forgotten_what_came_later() {
    let lab = Lab::start();
    assert_eq!(
        lab.try_admin(&json!({"cmd": "rollback"}))["error"]["code"],
        "conflict"
    );
    let (id, token) = lab.running();
    lab.patch(id, &token, "0-4", "hello");
    let waiting = lab.trigger(&hello())[0];
    let value = lab.admin(&json!({"cmd": "status"}))["runner"]["requests"].clone();
    lab.admin(&json!({"cmd": "snapshot"}));
    lab.patch(id, &token, "5-9", " more");
    lab.finish(id, &token, "success");
    let later = lab.take();
    let newest = lab.trigger(&hello())[0];
    lab.admin(&json!({"cmd": "rollback"}));
    assert_eq!(
        (lab.status(id), lab.trace(id)),
        ("running".into(), "hello".into())
    );
    assert_eq!(lab.status(waiting), "pending");
    assert_eq!(
        lab.admin(&json!({"cmd": "status"}))["runner"]["requests"],
        value
    );
    let answer = lab.patch(id, &token, "10-10", "!");
    assert_eq!((answer.status, answer.header("Range")), (416, Some("0-5")));
    let refused = lab.finish(waiting, later["token"].as_str().unwrap(), "success");
    assert_eq!(
        (refused.status, refused.header("Job-Status")),
        (403, Some("pending"))
    );
    assert_eq!(lab.trigger(&hello())[0], newest, "ids are given again");
    assert_eq!(lab.take()["id"], waiting);
    lab.admin(&json!({"cmd": "rollback"}));
    assert_eq!(lab.status(waiting), "pending", "as often as it takes");
}

#[test]
fn the_servers_clock_may_be_before_or_behind_and_its_date_says_so() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let year = |lab: &Lab| {
        let answer = lab.patch(id, &token, "0-0", "");
        let date = answer.header("Date").unwrap().to_owned();
        date.split(' ').nth(3).unwrap().parse::<u64>().unwrap()
    };
    let now = year(&lab);
    lab.admin(&json!({"cmd": "skew", "secs": -2 * 366 * 86_400}));
    assert!(year(&lab) < now);
    assert_eq!(lab.status(id), "running", "nothing is reaped by a skew");
    lab.admin(&json!({"cmd": "skew", "secs": 4 * 366 * 86_400_i64}));
    let answer = lab.patch(id, &token, "0-0", "");
    let date = answer.header("Date").unwrap();
    assert!(
        date.contains(&(now + 2).to_string()) || date.contains(&(now + 1).to_string()),
        "{date}"
    );
}
