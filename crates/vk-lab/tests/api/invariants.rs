//! Each broken promise can be seen, and a run without one shows none.

use serde_json::json;

use crate::lab::{Lab, hello};
use crate::raw::send;

#[test]
fn a_run_that_breaks_nothing_ends_with_an_empty_list_and_0() {
    let lab = Lab::with(&[], Some("[S]\nvalue = 's3cret-value'\nmasked = true\n"));
    let (id, token) = lab.running();
    lab.put(id, &json!({"token": token, "state": "running"}));
    lab.patch(id, &token, "0-4", "hello");
    let want = lab.dir.path().join("want");
    std::fs::write(&want, "hello").unwrap();
    lab.admin(&json!({"cmd": "expect", "job": id, "trace_file": want}));
    let checksum = format!("crc32:{:08x}", crc32fast::hash(b"hello"));
    let body = json!({"token": token, "state": "success",
                      "output": {"checksum": checksum, "bytesize": 5}});
    lab.put(id, &body);
    let (ended, code) = lab.end();
    assert_eq!((&ended["broken"], code), (&json!([]), 0));
}

#[test]
fn a_job_that_is_never_ended_and_one_never_heard_of_are_told_at_the_end() {
    let lab = Lab::start();
    let (heard, token) = lab.running();
    lab.patch(heard, &token, "0-0", "x");
    let (silent, _) = lab.running();
    let (ended, code) = lab.end();
    let broken = ended["broken"].as_array().unwrap();
    let kinds: Vec<_> = broken
        .iter()
        .map(|b| (b["kind"].clone(), b["job"].clone()))
        .collect();
    assert_eq!(
        kinds,
        [
            (json!("never_finished"), json!(heard)),
            (json!("orphan"), json!(silent)),
        ]
    );
    assert_eq!(code, 3);
}

#[test]
fn a_job_that_the_server_had_to_end_was_never_finished() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    lab.put(id, &json!({"token": token, "state": "running"}));
    lab.admin(&json!({"cmd": "advance", "secs": 3_601}));
    assert_eq!(lab.broken(), ["never_finished"]);
}

#[test]
fn bytes_that_are_missing_or_changed_are_told() {
    let lab = Lab::start();
    let want = lab.dir.path().join("want");
    std::fs::write(&want, "hello").unwrap();
    let rows = [
        ("hell", "bytes_missing"),
        ("", "bytes_missing"),
        ("hallo", "bytes_changed"),
        ("hello!", "bytes_changed"),
        ("jell", "bytes_changed"),
    ];
    let mut all = Vec::new();
    for (sent, kind) in rows {
        let (id, token) = lab.running();
        lab.patch(id, &token, "0-9", sent);
        lab.admin(&json!({"cmd": "expect", "job": id, "trace_file": want}));
        lab.finish(id, &token, "success");
        all.push(kind);
        assert_eq!(lab.broken(), all, "{sent:?}");
    }
    let (id, token) = lab.running();
    lab.patch(id, &token, "0-9", "one two");
    lab.admin(&json!({"cmd": "expect", "job": id, "contains": ["one", "two"]}));
    lab.finish(id, &token, "success");
    assert_eq!(lab.broken(), all, "both are there");
    lab.admin(&json!({"cmd": "expect", "job": id, "contains": ["two", "one"]}));
    assert_eq!(
        lab.broken().last().unwrap(),
        "bytes_missing",
        "not in this order"
    );
}

#[test]
fn a_secret_in_a_trace_is_told_by_its_name_only() {
    let lab = Lab::with(
        &[],
        Some("[DEPLOY]\nvalue = 's3cret-value'\nmasked = true\n"),
    );
    let (id, token) = lab.running();
    lab.patch(id, &token, "0-9", "a s3cret-va");
    assert_eq!(lab.status(id), "running");
    lab.patch(id, &token, "11-99", "lue b");
    lab.finish(id, &token, "success");
    let shown = lab.admin(&json!({"cmd": "invariants"}));
    assert_eq!(shown["broken"][0]["kind"], "secret_in_trace");
    let text = shown.to_string();
    assert!(text.contains("DEPLOY") && !text.contains("s3cret-value"));
}

#[test]
fn a_token_in_two_patches_slips_past_the_server_and_is_told() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let (one, two) = token.split_at(9);
    lab.patch(id, &token, "0-8", one);
    lab.patch(id, &token, "9-99", two);
    lab.finish(id, &token, "success");
    assert_eq!(lab.broken(), ["secret_in_trace"]);
}

#[test]
fn a_token_that_the_server_had_to_overwrite_is_told() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    lab.patch(id, &token, "0-99", &token);
    lab.finish(id, &token, "success");
    assert_eq!(lab.broken(), ["masked_in_place"]);
}

#[test]
fn calls_after_the_end_are_told_and_the_allowed_retry_is_not() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    lab.finish(id, &token, "success");
    lab.finish(id, &token, "success");
    assert!(
        lab.broken().is_empty(),
        "the retry of a 200 that may have been lost"
    );
    lab.patch(id, &token, "0-0", "x");
    assert_eq!(lab.broken(), ["call_after_end"]);

    let lab = Lab::start();
    let (id, token) = lab.running();
    lab.finish(id, &token, "success");
    lab.finish(id, &token, "failed");
    assert_eq!(lab.broken(), ["call_after_end"], "another end is no retry");
}

#[test]
fn after_a_403_only_one_final_update_is_allowed() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    lab.admin(&json!({"cmd": "cancel", "job": id, "force": true}));
    assert_eq!(lab.patch(id, &token, "0-0", "x").status, 403);
    lab.finish(id, &token, "failed");
    assert!(lab.broken().is_empty());
    lab.finish(id, &token, "failed");
    assert_eq!(lab.broken(), ["call_after_end"]);
    // Transfers learn of the end by themselves.
    let path = format!("/api/v4/jobs/{id}/artifacts");
    let headers = [("JOB-TOKEN", token.as_str())];
    lab.call("POST", &path, &headers, "");
    assert_eq!(lab.broken().len(), 1);
    lab.call("POST", &path, &headers, "");
    assert_eq!(lab.broken().len(), 2);
}

#[test]
fn a_wrong_checksum_or_size_is_told_and_answered_200() {
    let lab = Lab::start();
    let crc = format!("crc32:{:08x}", crc32fast::hash(b"hello"));
    let rows = [
        (json!({"checksum": crc, "bytesize": 5}), vec![]),
        (
            json!({"checksum": "crc32:00000000", "bytesize": 5}),
            vec!["checksum_mismatch"],
        ),
        (json!({"checksum": "nonsense"}), vec!["checksum_mismatch"]),
        (
            json!({"checksum": crc, "bytesize": 6}),
            vec!["size_mismatch"],
        ),
    ];
    let mut all = Vec::new();
    for (output, kinds) in rows {
        let (id, token) = lab.running();
        lab.patch(id, &token, "0-4", "hello");
        let body = json!({"token": token, "state": "success", "output": output});
        assert_eq!(lab.put(id, &body).status, 200);
        all.extend(kinds);
        assert_eq!(lab.broken(), all);
    }
}

#[test]
fn a_job_request_that_its_client_gives_up_is_told() {
    let lab = Lab::with(&["--long-poll-ns", "50000000000"], None);
    let first = lab.request("");
    let value = first.header("X-GitLab-Last-Update").unwrap();
    let kind = [("Content-Type", "application/json")];
    let body = lab.ask(value).to_string();
    // One that is gone before the server has read it is none; the next is held longer.
    let told = (1..100).any(|at| {
        let path = "/api/v4/jobs/request";
        let held = send(lab.addr, "POST", path, &kind, body.as_bytes());
        std::thread::sleep(std::time::Duration::from_millis(at));
        drop(held);
        lab.broken()
            .iter()
            .any(|kind| kind == "aborted_job_request")
    });
    assert!(told);
}

#[test]
fn the_subcommands_say_how_it_stands_by_their_exit_codes() {
    let lab = Lab::start();
    let run = |arguments: &[&str]| {
        let (verb, rest) = arguments.split_first().unwrap();
        let mut command = std::process::Command::new(crate::lab::program());
        command
            .arg(verb)
            .arg("--admin")
            .arg(lab.admin_socket())
            .args(rest);
        command.output().unwrap()
    };
    let file = lab.dir.path().join("pipeline.json");
    std::fs::write(&file, hello().to_string()).unwrap();
    assert_eq!(
        run(&["trigger", file.to_str().unwrap()]).status.code(),
        Some(0)
    );
    let job = lab.take();
    assert_eq!(
        run(&["invariants"]).status.code(),
        Some(3),
        "an orphan so far"
    );
    let id = job["id"].as_u64().unwrap();
    lab.finish(id, job["token"].as_str().unwrap(), "failed");
    assert_eq!(run(&["invariants"]).status.code(), Some(0));
    assert_eq!(run(&["status", "1", "--wait"]).status.code(), Some(3));
    assert_eq!(run(&["status", "1"]).status.code(), Some(0));
    assert_eq!(run(&["retry", "99"]).status.code(), Some(1));
    assert_eq!(run(&["retry", &id.to_string()]).status.code(), Some(0));
    assert_eq!(run(&["cancel", "2", "--force"]).status.code(), Some(0));
    assert_eq!(lab.status(2), "canceled");
    assert_eq!(run(&["inject", r#"{"on":"git"}"#]).status.code(), Some(1));
    assert_eq!(
        run(&["expect", "1", "--contains", "x"]).status.code(),
        Some(0)
    );
    assert_eq!(run(&["trigger", "/nonexistent"]).status.code(), Some(1));
    let help = std::process::Command::new(crate::lab::program())
        .arg("--help")
        .output()
        .unwrap();
    assert!(
        String::from_utf8(help.stdout)
            .unwrap()
            .contains("Exit codes")
    );
}
