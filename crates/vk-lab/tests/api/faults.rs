//! Section 10: faults on purpose, and those that are not built.

use serde_json::{Value, json};

use crate::lab::{Lab, hello};
use crate::raw::try_call;

fn inject(lab: &Lab, fault: &Value) {
    let mut command = fault.clone();
    command["cmd"] = "inject".into();
    lab.admin(&command);
}

#[test]
fn a_409_names_no_queue_value_and_takes_no_job() {
    let lab = Lab::start();
    lab.trigger(&hello());
    inject(&lab, &json!({"on": "request", "action": {"status": 409}}));
    let answer = lab.request("");
    assert_eq!(
        (answer.status, answer.header("X-GitLab-Last-Update")),
        (409, None)
    );
    assert_eq!(answer.json(), json!({"message": "409 Conflict"}));
    assert_eq!(lab.request("").status, 201);
}

#[test]
fn a_201_that_is_lost_has_taken_its_job_and_is_an_orphan() {
    let lab = Lab::start();
    for action in [json!("lose_answer"), json!("truncate")] {
        let ids = lab.trigger(&hello());
        inject(&lab, &json!({"on": "request", "action": action}));
        let kind = [("Content-Type", "application/json")];
        let body = lab.ask("").to_string();
        let answer = try_call(
            lab.addr,
            "POST",
            "/api/v4/jobs/request",
            &kind,
            body.as_bytes(),
        );
        assert!(answer.is_none_or(|answer| answer.status == 201 && !answer.whole));
        assert_eq!(lab.status(ids[0]), "running");
    }
    assert_eq!(lab.broken(), ["orphan", "orphan"]);
}

#[test]
fn a_lost_answer_to_a_patch_or_final_update_was_applied_and_its_retry_is_allowed() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    inject(&lab, &json!({"on": "trace", "action": "lose_answer"}));
    let headers = [("JOB-TOKEN", token.as_str()), ("Content-Range", "0-4")];
    let path = format!("/api/v4/jobs/{id}/trace");
    assert!(try_call(lab.addr, "PATCH", &path, &headers, b"hello").is_none());
    let again = lab.patch(id, &token, "0-4", "hello");
    assert_eq!((again.status, again.header("Range")), (416, Some("0-5")));
    inject(&lab, &json!({"on": "update", "action": "lose_answer"}));
    let body = json!({"token": token, "state": "success"}).to_string();
    let path = format!("/api/v4/jobs/{id}");
    assert!(try_call(lab.addr, "PUT", &path, &[], body.as_bytes()).is_none());
    let again = lab.finish(id, &token, "success");
    assert_eq!(
        (again.status, again.header("Job-Status")),
        (403, Some("success"))
    );
    assert!(lab.broken().is_empty(), "{:?}", lab.broken());
}

#[test]
fn every_nth_patch_fails_with_or_without_retry_after() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let fault = json!({"on": "trace", "action": {"status": 429}, "retry_after": 7, "every": 2});
    inject(&lab, &fault);
    assert_eq!(lab.patch(id, &token, "0-0", "a").status, 202);
    let hit = lab.patch(id, &token, "1-1", "b");
    assert_eq!((hit.status, hit.header("Retry-After")), (429, Some("7")));
    inject(&lab, &json!({"on": "trace", "action": {"status": 502}}));
    let hit = lab.patch(id, &token, "1-1", "b");
    assert_eq!((hit.status, hit.header("Retry-After")), (502, None));
    inject(&lab, &json!({"on": "trace", "action": "drop"}));
    let headers = [("JOB-TOKEN", token.as_str()), ("Content-Range", "1-1")];
    let path = format!("/api/v4/jobs/{id}/trace");
    assert!(try_call(lab.addr, "PATCH", &path, &headers, b"b").is_none());
    assert_eq!(lab.trace(id), "a", "nothing of it was applied");
}

#[test]
fn a_delayed_answer_comes_later() {
    let lab = Lab::start();
    inject(&lab, &json!({"on": "request", "action": {"delay_ms": 300}}));
    let began = std::time::Instant::now();
    assert_eq!(lab.request("").status, 204);
    assert!(began.elapsed().as_millis() >= 300);
}

#[test]
fn a_fault_setting_or_command_that_is_none_is_refused_with_what_there_is() {
    let lab = Lab::start();
    let rows = [
        (
            json!({"cmd": "inject", "on": "nowhere", "action": "drop"}),
            "unknown variant",
        ),
        (
            json!({"cmd": "inject", "on": "git", "action": "nope"}),
            "unknown variant",
        ),
        (
            json!({"cmd": "inject", "on": "git", "action": "drop", "sometimes": 1}),
            "unknown field",
        ),
        (
            json!({"cmd": "inject", "on": "any", "action": "drop", "count": 0}),
            "above 0",
        ),
        (
            json!({"cmd": "set", "commit_mode": "two-phase"}),
            "unknown variant",
        ),
        (json!({"cmd": "set", "nope": 1}), "unknown field"),
        (json!({"cmd": "nope"}), "no command"),
    ];
    for (command, part) in rows {
        let answer = lab.try_admin(&command);
        assert_eq!(answer["error"]["code"], "invalid", "{command}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(part), "{message} does not say {part}");
    }
    let nowhere = json!({"cmd": "inject", "on": "upload", "action": {"redirect": {}}});
    assert_eq!(lab.try_admin(&nowhere)["error"]["code"], "conflict");
}

#[test]
fn every_fault_command_and_setting_stands_in_the_help() {
    let help = |what: &str| {
        let mut command = std::process::Command::new(crate::lab::program());
        let out = command.args([what, "--help"]).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let lab = Lab::start();
    // The list of what there is comes from the refusal of what there is not.
    let listed = |command: Value| -> Vec<String> {
        let answer = lab.try_admin(&command);
        let message = answer["error"]["message"].as_str().unwrap().to_owned();
        let names = message.split("expected one of ").nth(1).unwrap();
        let names = names.split('`').skip(1).step_by(2).map(str::to_owned);
        names.take_while(|name| !name.contains(' ')).collect()
    };
    let inject = help("inject");
    let rows = [
        json!({"cmd": "inject", "on": "nope", "action": "drop"}),
        json!({"cmd": "inject", "on": "any", "action": "nope"}),
        json!({"cmd": "inject", "on": "any", "action": "drop", "nope": 1}),
    ];
    for command in rows {
        let names = listed(command);
        assert!(names.len() > 8, "{names:?}");
        for name in names {
            assert!(inject.contains(&name), "inject --help does not name {name}");
        }
    }
    let admin = help("admin");
    let settings = lab.admin(&json!({"cmd": "set"}))["settings"].clone();
    let settings = settings.as_object().unwrap().keys().cloned();
    for name in listed(json!({"cmd": "nope"})).into_iter().chain(settings) {
        assert!(admin.contains(&name), "admin --help does not name {name}");
    }
}
