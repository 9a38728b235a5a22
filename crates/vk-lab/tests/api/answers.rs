//! Section 10's faults, one by one: what the caller gets, and what is stored.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::lab::{Lab, hello};
use crate::raw::{Answer, receive, send, try_call};

fn inject(lab: &Lab, fault: &Value) {
    let mut command = fault.clone();
    command["cmd"] = "inject".into();
    lab.admin(&command);
}

/// A patch that may get no answer.
fn patch(lab: &Lab, id: u64, token: &str, range: &str, body: &str) -> Option<Answer> {
    let headers = [("JOB-TOKEN", token), ("Content-Range", range)];
    let path = format!("/api/v4/jobs/{id}/trace");
    try_call(lab.addr, "PATCH", &path, &headers, body.as_bytes())
}

/// An update that may get no answer.
fn put(lab: &Lab, id: u64, token: &str, state: &str) -> Option<Answer> {
    let body = json!({"token": token, "state": state}).to_string();
    try_call(
        lab.addr,
        "PUT",
        &format!("/api/v4/jobs/{id}"),
        &[],
        body.as_bytes(),
    )
}

/// An upload of `content` that may get no answer.
fn upload(lab: &Lab, id: u64, token: &str, content: &str) -> Option<Answer> {
    let form = format!(
        "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.zip\"\r\n\r\n\
         {content}\r\n--B--\r\n"
    );
    let headers = [
        ("JOB-TOKEN", token),
        ("Content-Type", "multipart/form-data; boundary=B"),
    ];
    let path = format!("/api/v4/jobs/{id}/artifacts");
    try_call(lab.addr, "POST", &path, &headers, form.as_bytes())
}

#[test]
fn a_status_before_and_after_the_body_applies_nothing_and_one_afterwards_has_applied() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    for (when, stored) in [("before", ""), ("body", ""), ("after", "a")] {
        inject(
            &lab,
            &json!({"on": "trace", "action": {"status": 502}, "when": when}),
        );
        let answer = patch(&lab, id, &token, "0-0", "a").unwrap();
        assert_eq!(
            (answer.status, answer.header("Range")),
            (502, None),
            "{when}"
        );
        assert_eq!(lab.trace(id), stored, "{when}");
    }
    for (when, status) in [
        ("before", "running"),
        ("body", "running"),
        ("after", "success"),
    ] {
        inject(
            &lab,
            &json!({"on": "update", "action": {"status": 500}, "when": when}),
        );
        assert_eq!(
            put(&lab, id, &token, "success").unwrap().status,
            500,
            "{when}"
        );
        assert_eq!(lab.status(id), status, "{when}");
    }
    let again = put(&lab, id, &token, "success").unwrap();
    assert_eq!(
        (again.status, again.header("Job-Status")),
        (403, Some("success"))
    );
    assert!(
        lab.broken().is_empty(),
        "the retry is allowed: {:?}",
        lab.broken()
    );
}

#[test]
fn a_connection_is_dropped_before_acting_after_the_body_and_after_acting() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    for (action, when, stored) in [
        (json!("drop"), json!("before"), ""),
        (json!("drop"), json!("body"), ""),
        (json!("drop"), json!("after"), "a"),
        (json!("lose_answer"), Value::Null, "a"),
    ] {
        let mut fault = json!({"on": "trace", "action": action});
        if !when.is_null() {
            fault["when"] = when.clone();
        }
        lab.admin(&json!({"cmd": "forget_trace", "job": id}));
        inject(&lab, &fault);
        assert!(
            patch(&lab, id, &token, "0-0", "a").is_none(),
            "{action} {when}"
        );
        assert_eq!(lab.trace(id), stored, "{action} {when}");
    }
}

#[test]
fn uploads_fail_before_and_after_all_their_bytes_and_the_same_file_may_come_again() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let kept = || lab.job(id)["artifacts"].as_array().unwrap().len();
    let rows = [
        (json!({"status": 413}), "before", 413, 0),
        (json!({"status": 408}), "body", 408, 0),
        (json!({"status": 502}), "body", 502, 0),
        (json!({"status": 503}), "before", 503, 0),
        (json!({"status": 200}), "before", 200, 0),
        (json!({"status": 502}), "after", 502, 1),
    ];
    for (action, when, status, stored) in rows {
        let fault = json!({"on": "upload", "action": action, "when": when, "retry_after": 9});
        inject(&lab, &fault);
        let answer = upload(&lab, id, &token, "abc").unwrap();
        assert_eq!(
            (answer.status, answer.header("Retry-After")),
            (status, Some("9")),
            "{when}"
        );
        assert_eq!(kept(), stored, "{action} {when}");
    }
    assert_eq!(
        upload(&lab, id, &token, "abc").unwrap().status,
        201,
        "the same bytes"
    );
    assert_eq!(
        upload(&lab, id, &token, "abd").unwrap().status,
        400,
        "other bytes"
    );
    let files = std::fs::read_dir(lab.dir.path().join("state/artifacts")).unwrap();
    assert_eq!(files.count(), 1, "what was not kept does not lie about");
}

#[test]
fn a_download_fails_once_and_then_comes() {
    let lab = Lab::start();
    let ids = lab.trigger(&json!({"stages": ["a", "b"], "jobs": [
        {"name": "one", "stage": "a", "script": ["x"], "artifacts": {"paths": ["p"]}},
        {"name": "two", "stage": "b", "script": ["x"]}]}));
    let one = lab.take();
    upload(&lab, ids[0], one["token"].as_str().unwrap(), "content").unwrap();
    lab.finish(ids[0], one["token"].as_str().unwrap(), "success");
    let two = lab.take();
    let headers = [("JOB-TOKEN", two["token"].as_str().unwrap())];
    let path = format!("/api/v4/jobs/{}/artifacts", ids[0]);
    let get = || try_call(lab.addr, "GET", &path, &headers, b"");
    inject(
        &lab,
        &json!({"on": "download", "action": {"status": 401}, "count": 2}),
    );
    assert_eq!((get().unwrap().status, get().unwrap().status), (401, 401));
    inject(&lab, &json!({"on": "download", "action": "truncate"}));
    let cut = get().unwrap();
    assert!(cut.status == 200 && !cut.whole);
    inject(&lab, &json!({"on": "download", "action": "drop"}));
    assert!(get().is_none());
    assert_eq!(get().unwrap().text(), "content");
}

#[test]
fn an_answer_is_cut_at_half_and_its_job_is_taken() {
    let lab = Lab::start();
    let ids = lab.trigger(&hello());
    inject(&lab, &json!({"on": "request", "action": "truncate"}));
    let cut = lab.request("");
    assert!(cut.status == 201 && !cut.whole);
    let length: usize = cut.header("Content-Length").unwrap().parse().unwrap();
    assert_eq!(cut.body.len(), length / 2);
    assert_eq!(lab.status(ids[0]), "running");
    let broken = lab.admin(&json!({"cmd": "invariants"}))["broken"].clone();
    assert_eq!(
        (&broken[0]["kind"], &broken[0]["injected"]),
        (&json!("orphan"), &json!(true))
    );
    assert_eq!(lab.job(ids[0])["hand_out_lost"], true);
}

#[test]
fn an_orphan_of_the_clients_own_is_not_called_injected() {
    let lab = Lab::start();
    lab.running();
    let broken = lab.admin(&json!({"cmd": "invariants"}))["broken"].clone();
    assert_eq!(
        (&broken[0]["kind"], &broken[0]["injected"]),
        (&json!("orphan"), &Value::Null)
    );
}

#[test]
fn an_answer_trickles_in_whole() {
    let lab = Lab::start();
    lab.trigger(&hello());
    inject(
        &lab,
        &json!({"on": "request", "action": {"trickle_ms": 40}}),
    );
    let began = Instant::now();
    let answer = lab.request("");
    assert!(answer.whole && answer.json()["id"] == 1, "{answer:?}");
    assert!(began.elapsed() >= Duration::from_millis(8 * 40));
}

#[test]
fn a_stalled_socket_is_not_read_and_closed_at_last() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    for (when, status) in [
        ("before", "running"),
        ("body", "running"),
        ("after", "success"),
    ] {
        inject(
            &lab,
            &json!({"on": "update", "action": {"stall_ms": 200}, "when": when}),
        );
        let began = Instant::now();
        assert!(put(&lab, id, &token, "success").is_none());
        assert!(began.elapsed() >= Duration::from_millis(200), "{when}");
        assert_eq!(lab.status(id), status, "{when}");
    }
}

#[test]
fn a_delay_comes_before_or_after_acting() {
    let lab = Lab::start();
    for (when, seen) in [("before", "running"), ("after", "success")] {
        let (id, token) = lab.running();
        inject(
            &lab,
            &json!({"on": "update", "action": {"delay_ms": 1_500}, "when": when}),
        );
        let body = json!({"token": token, "state": "success"}).to_string();
        let mut held = send(
            lab.addr,
            "PUT",
            &format!("/api/v4/jobs/{id}"),
            &[],
            body.as_bytes(),
        );
        let applied = (0..50).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            lab.status(id) == "success"
        });
        assert_eq!(
            applied,
            seen == "success",
            "{when}: looked at while it is held"
        );
        assert_eq!(receive(&mut held).unwrap().status, 200);
        assert_eq!(lab.status(id), "success");
    }
}

#[test]
fn headers_are_changed_and_taken_away_and_what_was_done_stays() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let headers =
        json!({"Range": "0-0", "X-GitLab-Trace-Update-Interval": null, "Job-Status": "canceling"});
    inject(
        &lab,
        &json!({"on": "trace", "action": {"headers": headers}}),
    );
    let answer = patch(&lab, id, &token, "0-4", "hello").unwrap();
    assert_eq!((answer.status, answer.header("Range")), (202, Some("0-0")));
    assert_eq!(answer.header("X-GitLab-Trace-Update-Interval"), None);
    assert_eq!(answer.header("Job-Status"), Some("canceling"));
    assert_eq!(lab.trace(id), "hello");
    inject(
        &lab,
        &json!({"on": "request", "action": {"headers": {"X-GitLab-Last-Update": null}}}),
    );
    assert_eq!(lab.request("").header("X-GitLab-Last-Update"), None);
}

#[test]
fn a_body_is_replaced_by_another() {
    let lab = Lab::start();
    let ids = lab.trigger(&hello());
    inject(
        &lab,
        &json!({"on": "request", "action": {"body": "<html>a login page</html>"}}),
    );
    let answer = lab.request("");
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (201, "<html>a login page</html>")
    );
    assert!(answer.whole);
    assert_eq!(lab.status(ids[0]), "running");
    assert_eq!(lab.job(ids[0])["hand_out_lost"], true);
}

#[test]
fn fields_of_a_job_response_are_replaced_removed_and_asked_for_as_features() {
    let lab = Lab::start();
    lab.trigger(&json!({"jobs": [{"name": "a", "script": ["x"],
        "response": {"steps": null, "git_info": {"depth": "many"}, "job_info": 7}}]}));
    let job = lab.take();
    assert!(job.get("steps").is_none());
    assert_eq!(
        (&job["git_info"]["depth"], &job["job_info"]),
        (&json!("many"), &json!(7))
    );
    assert_eq!(job["git_info"]["ref"], "main", "its other fields stay");
    for (response, feature) in [
        (json!({"secrets": {"DB": {"vault": {}}}}), "vault_secrets"),
        (
            json!({"cache": [{"key": "k", "fallback_keys": ["l"]}]}),
            "fallback_cache_keys",
        ),
        (
            json!({"steps": [{"name": "release", "script": ["x"]}]}),
            "multi_build_steps",
        ),
        (
            json!({"git_info": {"refspecs": ["+refs/merge-requests/1/head:refs/x"]}}),
            "refspecs",
        ),
    ] {
        let one = json!({"jobs": [{"name": "a", "script": ["x"], "response": response}]});
        let ids = lab.trigger(&one);
        assert_eq!(lab.request("").status, 204, "{feature}");
        assert_eq!(
            lab.job(ids[0])["failure_reason"],
            "runner_unsupported",
            "{feature}"
        );
        lab.trigger(&one);
        let mut ask = lab.ask("");
        ask["info"]["features"][feature] = true.into();
        assert_eq!(lab.post("/jobs/request", &ask).status, 201, "{feature}");
    }
}

#[test]
fn a_trace_is_forgotten_in_the_middle_of_a_patch_that_then_finds_416() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    lab.patch(id, &token, "0-9", "0123456789");
    for (how, range) in [(json!({"tail": 3}), "0-7"), (json!({}), "0-0")] {
        inject(
            &lab,
            &json!({"on": "trace", "action": {"forget_trace": how}}),
        );
        let end: u64 = lab.job(id)["trace_size"].as_u64().unwrap();
        let answer = patch(&lab, id, &token, &format!("{end}-{end}"), "x").unwrap();
        assert_eq!(
            (answer.status, answer.header("Range")),
            (416, Some(range)),
            "{how}"
        );
    }
    lab.patch(id, &token, "0-3", "anew");
    inject(
        &lab,
        &json!({"on": "trace", "action": {"forget_trace": {"keep": 2}}, "when": "after"}),
    );
    assert_eq!(
        patch(&lab, id, &token, "4-4", "!").unwrap().header("Range"),
        Some("0-5")
    );
    assert_eq!(lab.trace(id), "an", "lost after it was answered");
}

#[test]
fn a_job_is_cancelled_at_every_point_of_every_call() {
    let lab = Lab::start();
    type Call = fn(&Lab, u64, &str) -> Option<Answer>;
    let calls: [(&str, Call, u16); 3] = [
        (
            "trace",
            |lab, id, token| patch(lab, id, token, "0-3", "tail"),
            202,
        ),
        (
            "update",
            |lab, id, token| put(lab, id, token, "success"),
            200,
        ),
        (
            "upload",
            |lab, id, token| upload(lab, id, token, "abc"),
            201,
        ),
    ];
    for (on, call, well) in calls {
        for when in ["before", "body", "after"] {
            for force in [false, true] {
                let (id, token) = lab.running();
                let fault = json!({"on": on, "action": {"cancel": {"force": force}}, "when": when});
                inject(&lab, &fault);
                let answer = call(&lab, id, &token).unwrap();
                let what = format!("{on} {when} force {force}");
                let refused = force && when != "after";
                assert_eq!(answer.status, if refused { 403 } else { well }, "{what}");
                if refused {
                    assert_eq!(answer.header("Job-Status"), Some("canceled"), "{what}");
                    assert_eq!(lab.job(id)["trace_size"], 0, "{what}");
                    assert_eq!(lab.job(id)["artifacts"], json!([]), "{what}");
                }
                let end = match (on, force) {
                    ("update", _) if when == "after" => "success",
                    ("update", _) | (_, true) => "canceled",
                    _ => "canceling",
                };
                assert_eq!(lab.status(id), end, "{what}");
                lab.finish(id, &token, "failed");
            }
        }
    }
}

#[test]
fn verify_and_the_other_calls_of_a_runner_are_hit_too() {
    let lab = Lab::start();
    inject(
        &lab,
        &json!({"on": "verify", "action": {"status": 503}, "retry_after": 5}),
    );
    let verify = || lab.post("/runners/verify", &json!({"token": lab.token}));
    let hit = verify();
    assert_eq!((hit.status, hit.header("Retry-After")), (503, Some("5")));
    assert_eq!(verify().status, 200);
    inject(&lab, &json!({"on": "runner", "action": "lose_answer"}));
    let body = json!({"token": lab.token}).to_string();
    let path = "/api/v4/runners/reset_authentication_token";
    assert!(try_call(lab.addr, "POST", path, &[], body.as_bytes()).is_none());
    assert_eq!(
        verify().status,
        403,
        "the token was changed, and nobody heard of it"
    );
}

#[test]
fn a_tenth_of_all_calls_fails_by_seed_and_every_other_one_is_as_ever() {
    let run = |seed: u64| -> Vec<u16> {
        let lab = Lab::start();
        lab.admin(&json!({"cmd": "set", "rate_limits": {"trace": 0}}));
        let (id, token) = lab.running();
        for (action, retry) in [
            (json!({"status": 503}), None),
            (json!({"status": 429}), Some(1)),
        ] {
            let mut fault = json!({"on": "any", "action": action, "chance": 0.1, "seed": seed});
            if let Some(secs) = retry {
                fault["retry_after"] = secs.into();
            }
            inject(&lab, &fault);
        }
        let call = |_| lab.patch(id, &token, "0-0", "").status;
        let seen: Vec<u16> = (0..120).map(call).collect();
        let faults = lab.admin(&json!({"cmd": "faults"}))["faults"].clone();
        let hit = faults[0]["hit"].as_u64().unwrap() + faults[1]["hit"].as_u64().unwrap();
        assert_eq!(faults[0]["seen"], 120);
        let failed = seen.iter().filter(|status| **status != 202).count();
        assert_eq!(usize::try_from(hit).unwrap(), failed);
        assert_eq!(lab.admin(&json!({"cmd": "clear_faults"}))["cleared"], 2);
        assert_eq!(call(0), 202);
        seen
    };
    let first = run(7);
    assert_eq!(first, run(7), "the same seed");
    assert!(first.contains(&503) && first.contains(&429) && first.contains(&202));
    assert_ne!(first, run(8));
}
