//! Section 2.6: job requests.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::lab::{Lab, hello};
use crate::raw::{receive, send};

const SECOND: u64 = 1_000_000_000;

fn last_update(answer: &crate::raw::Answer) -> Option<String> {
    answer.header("X-GitLab-Last-Update").map(str::to_owned)
}

#[test]
fn every_refusal_of_a_job_request_is_the_pages() {
    let lab = Lab::start();
    let large = json!({"token": lab.token, "pad": "x".repeat(33 << 10)});
    let small = json!({"token": lab.token, "pad": "x".repeat(31 << 10)});
    let rows = [
        (json!({"system_id": "s_1"}), 400),
        (json!({"token": ""}), 400),
        (json!({"token": "glrt-wrong"}), 403),
        (large, 413),
        (small, 204),
        (json!("no object"), 400),
        (json!({"token": lab.token, "unknown": {"field": 1}}), 204),
    ];
    for (body, status) in rows {
        let answer = lab.post("/jobs/request", &body);
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    // A header authenticates nobody.
    let headers = [
        ("RUNNER-TOKEN", lab.token.as_str()),
        ("Content-Type", "application/json"),
    ];
    assert_eq!(
        lab.call("POST", "/api/v4/jobs/request", &headers, "{}")
            .status,
        400
    );
}

#[test]
fn the_three_204s_of_rails_name_the_queue_value() {
    let lab = Lab::with(&["--long-poll-ns", "0"], None);
    let empty = lab.request("");
    let value = last_update(&empty).unwrap();
    assert_eq!((empty.status, empty.body.len()), (204, 0));
    assert_eq!(
        empty.header("Gitlab-Ci-Builds-Polling"),
        None,
        "the hold is off"
    );
    let same = lab.request(&value);
    assert_eq!(
        (same.status, last_update(&same)),
        (204, Some(value.clone()))
    );
    lab.admin(&json!({"cmd": "runner", "paused": true}));
    let paused = lab.request("");
    assert_eq!(paused.status, 204);
    assert_ne!(
        last_update(&paused).unwrap(),
        value,
        "an edit changes the value"
    );
}

#[test]
fn a_paused_runner_gets_no_job() {
    let lab = Lab::start();
    lab.trigger(&hello());
    lab.admin(&json!({"cmd": "runner", "paused": true}));
    assert_eq!(lab.request("").status, 204);
    lab.admin(&json!({"cmd": "runner", "paused": false}));
    assert_eq!(lab.request("").status, 201);
}

#[test]
fn a_pending_job_changes_the_queue_value_and_a_201_names_none() {
    let lab = Lab::start();
    let value = last_update(&lab.request("")).unwrap();
    lab.trigger(&hello());
    let answer = lab.request(&value);
    assert_eq!((answer.status, last_update(&answer)), (201, None));
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    let after = last_update(&lab.request(&value)).unwrap();
    assert_ne!(after, value);
}

#[test]
fn a_held_request_that_wakes_gets_204_without_a_value_and_the_next_one_the_job() {
    let lab = Lab::with(&["--long-poll-ns", &(50 * SECOND).to_string()], None);
    let first = lab.request("");
    assert_eq!(first.header("Gitlab-Ci-Builds-Polling"), Some("yes"));
    let value = last_update(&first).unwrap();
    let kind = [("Content-Type", "application/json")];
    let body = lab.ask(&value).to_string();
    let began = Instant::now();
    let mut held = send(
        lab.addr,
        "POST",
        "/api/v4/jobs/request",
        &kind,
        body.as_bytes(),
    );
    lab.trigger(&hello());
    let woken = receive(&mut held).unwrap();
    assert_eq!(
        (woken.status, last_update(&woken), woken.body.len()),
        (204, None, 0)
    );
    assert_eq!(woken.header("Gitlab-Ci-Builds-Polling"), Some("yes"));
    assert!(
        began.elapsed() < Duration::from_secs(40),
        "it slept through the wake"
    );
    assert_eq!(lab.request(&value).status, 201);
}

#[test]
fn a_hold_that_ends_answers_204_without_a_value() {
    let lab = Lab::with(&["--long-poll-ns", "50"], None);
    let value = last_update(&lab.request("")).unwrap();
    let over = lab.request(&value);
    assert_eq!((over.status, last_update(&over)), (204, None));
}

#[test]
fn only_json_with_token_and_value_is_held() {
    let lab = Lab::with(&["--long-poll-ns", &(50 * SECOND).to_string()], None);
    let value = last_update(&lab.request("")).unwrap();
    let text = [("Content-Type", "text/plain")];
    let body = lab.ask(&value).to_string();
    let passed = lab.call("POST", "/api/v4/jobs/request", &text, body);
    assert_eq!((passed.status, last_update(&passed)), (204, Some(value)));
    let stale = lab.request("something else");
    assert!(
        last_update(&stale).is_some(),
        "another value goes straight to the queue"
    );
}

#[test]
fn a_job_runs_from_the_201_on_and_is_handed_out_once() {
    let lab = Lab::start();
    let ids = lab.trigger(&hello());
    assert_eq!(lab.status(ids[0]), "pending");
    lab.take();
    assert_eq!(lab.status(ids[0]), "running");
    assert_eq!(lab.request("").status, 204);
    assert_eq!(lab.job(ids[0])["handed_out"], 1);
}

#[test]
fn a_job_goes_only_to_a_runner_with_all_its_tags() {
    let lab = Lab::with(&["--tag", "big"], None);
    let job = |tags: &[&str]| json!({"jobs": [{"name": "a", "script": ["x"], "tags": tags}]});
    lab.trigger(&job(&["big", "arm"]));
    assert_eq!(lab.request("").status, 204);
    let ids = lab.trigger(&job(&["big"]));
    assert_eq!(lab.take()["id"], ids[0]);
    lab.admin(&json!({"cmd": "runner", "run_untagged": false}));
    lab.trigger(&job(&[]));
    assert_eq!(lab.request("").status, 204);
}

#[test]
fn a_job_that_needs_what_the_runner_lacks_fails_and_is_not_handed_out() {
    let lab = Lab::start();
    let rows = [
        json!({"artifacts": {"reports": {"junit": ["a.xml"]}}}),
        json!({"artifacts": {"paths": ["a"], "exclude": ["b"]}}),
        json!({"allow_failure": {"exit_codes": [3]}}),
    ];
    for mut job in rows {
        job["name"] = "a".into();
        job["script"] = json!(["x"]);
        let ids = lab.trigger(&json!({"jobs": [job]}));
        let answer = lab.post("/jobs/request", &json!({"token": lab.token}));
        assert_eq!(answer.status, 204);
        let job = lab.job(ids[0]);
        assert_eq!(
            (&job["status"], &job["handed_out"]),
            (&json!("failed"), &json!(0))
        );
        assert_eq!(job["failure_reason"], "runner_unsupported");
        // The next one comes to a runner that can.
        let ids = lab.trigger(&hello());
        assert_eq!(lab.take()["id"], ids[0]);
    }
}

#[test]
fn the_manager_is_known_by_its_system_id_with_its_features() {
    let lab = Lab::start();
    lab.request("");
    lab.post("/jobs/request", &json!({"token": lab.token}));
    let managers = lab.admin(&json!({"cmd": "status"}))["runner"]["managers"].clone();
    let ids: Vec<&str> = managers
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["system_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["<legacy>", "s_1"]);
    assert_eq!(managers[1]["features"]["cancel_gracefully"], true);
}

#[test]
fn later_stages_wait_and_failures_skip_them() {
    let lab = Lab::start();
    let ids = lab.trigger(&json!({"stages": ["build", "test"], "jobs": [
        {"name": "b", "stage": "build", "script": ["x"]},
        {"name": "t", "stage": "test", "script": ["x"]},
        {"name": "f", "stage": "test", "script": ["x"], "when": "on_failure"},
        {"name": "n", "stage": "test", "script": ["x"], "needs": []}]}));
    let words = |lab: &Lab| ids.iter().map(|id| lab.status(*id)).collect::<Vec<_>>();
    assert_eq!(words(&lab), ["pending", "created", "created", "pending"]);
    let job = lab.take();
    let token = job["token"].as_str().unwrap();
    assert_eq!(lab.finish(ids[0], token, "failed").status, 200);
    assert_eq!(words(&lab), ["failed", "skipped", "pending", "pending"]);
    // A retry gives those that were skipped another chance.
    let again = lab.admin(&json!({"cmd": "retry", "job": ids[0]}))["job"]
        .as_u64()
        .unwrap();
    assert_ne!(again, ids[0]);
    assert_eq!(
        (lab.status(ids[1]), lab.status(again)),
        ("created".into(), "pending".into())
    );
}

#[test]
fn retry_of_the_pipeline_makes_a_new_id_and_token_as_often_as_it_says() {
    let lab = Lab::start();
    lab.trigger(&json!({"jobs": [{"name": "a", "script": ["x"],
        "retry": {"max": 1, "when": ["runner_system_failure"]}}]}));
    let mut seen: Vec<(Value, Value)> = Vec::new();
    for _ in 0..2 {
        let job = lab.take();
        let id = job["id"].as_u64().unwrap();
        let body = json!({"token": job["token"], "state": "failed",
                          "failure_reason": "runner_system_failure"});
        assert_eq!(lab.put(id, &body).status, 200);
        seen.push((job["id"].clone(), job["token"].clone()));
    }
    assert!(seen[0].0 != seen[1].0 && seen[0].1 != seen[1].1);
    assert_eq!(lab.request("").status, 204, "max is 1");
}

#[test]
fn a_pending_job_dies_after_an_hour_without_an_online_runner_and_lives_with_one() {
    let lab = Lab::start();
    lab.request("");
    let ids = lab.trigger(&hello());
    // Two hours, with a heartbeat in each: its job survives.
    for _ in 0..2 {
        lab.admin(&json!({"cmd": "advance", "secs": 3_600}));
        lab.post(
            "/runners/verify",
            &json!({"token": lab.token, "system_id": "s_1"}),
        );
    }
    assert_eq!(lab.status(ids[0]), "pending");
    lab.admin(&json!({"cmd": "advance", "secs": 7_201}));
    assert_eq!(
        lab.job(ids[0])["failure_reason"],
        "stuck_pending_no_matching_runners"
    );
}

#[test]
fn the_job_response_has_every_field_of_the_page() {
    let lab = Lab::with(
        &[],
        Some("[DEPLOY]\nvalue = 's3cret-value'\nmasked = true\n"),
    );
    let ids = lab.trigger(
        &json!({"stages": ["build", "test"], "variables": {"P": "1"}, "jobs": [
        {"name": "b", "stage": "build", "script": ["make"]},
        {"name": "t", "stage": "test", "image": "debian:12", "script": ["a", "b"],
         "after_script": ["c"], "timeout": 600, "allow_failure": true,
         "variables": {"KEY": {"value": "k", "file": true}, "RAW": {"value": "$x", "raw": true}},
         "artifacts": {"name": "out", "paths": ["out/"], "exclude": ["*.tmp"], "when": "always",
                       "expire_in": "1 week", "reports": {"junit": ["j.xml"]}}}]}),
    );
    let build = lab.take();
    assert_eq!(
        (&build["artifacts"], &build["image"]),
        (&Value::Null, &Value::Null)
    );
    lab.finish(ids[0], build["token"].as_str().unwrap(), "success");
    let job = lab.take();
    let token = job["token"].as_str().unwrap();
    assert!(token.starts_with("glcbt-"));
    let fields = [
        "id",
        "token",
        "allow_git_fetch",
        "job_info",
        "git_info",
        "runner_info",
        "inputs",
        "variables",
        "steps",
        "hooks",
        "image",
        "services",
        "artifacts",
        "cache",
        "credentials",
        "dependencies",
        "features",
    ];
    for field in fields {
        assert!(job.get(field).is_some(), "{field} is missing");
    }
    // The stock runner refuses a job with `"run": null`; GitLab has it in jobs of steps only.
    assert!(job.get("run").is_none());
    assert_eq!(job["job_info"]["stage"], "test");
    assert_eq!(job["job_info"]["project_full_path"], "acme/web");
    assert_eq!(job["runner_info"]["timeout"], 600);
    assert_eq!(job["image"]["name"], "debian:12");
    assert_eq!(
        job["steps"],
        json!([
        {"name": "script", "script": ["a", "b"], "timeout": 600, "when": "on_success",
         "allow_failure": false},
        {"name": "after_script", "script": ["c"], "timeout": 600, "when": "always",
         "allow_failure": true}])
    );
    assert_eq!(
        job["artifacts"],
        json!([
        {"name": "out", "untracked": false, "paths": ["out/"], "exclude": ["*.tmp"],
         "when": "always", "expire_in": "1 week", "artifact_type": "archive",
         "artifact_format": "zip"},
        {"name": "junit.xml", "paths": ["j.xml"], "when": "always", "expire_in": "1 week",
         "artifact_type": "junit", "artifact_format": "gzip"}])
    );
    assert_eq!(
        job["dependencies"],
        json!([{"id": ids[0], "name": "b", "token": token}])
    );
    assert_eq!(
        job["features"]["failure_reasons"].as_array().unwrap().len(),
        52
    );
    let refspecs = &job["git_info"]["refspecs"];
    assert_eq!(
        refspecs,
        &json!([
            "+refs/pipelines/1:refs/pipelines/1",
            "+refs/heads/main:refs/remotes/origin/main"
        ])
    );
    assert_eq!(job["git_info"]["depth"], 20);
    let url = format!("http://gitlab-ci-token:{token}@{}/acme/web.git", lab.addr);
    assert_eq!(job["git_info"]["repo_url"], url);
    let variable = |key: &str| {
        let list = job["variables"].as_array().unwrap();
        list.iter()
            .rfind(|v| v["key"] == key)
            .unwrap_or_else(|| panic!("no {key}"))
            .clone()
    };
    assert_eq!(
        variable("DEPLOY"),
        json!({"key": "DEPLOY", "value": "s3cret-value",
                                          "public": false, "masked": true})
    );
    assert_eq!(
        (&variable("KEY")["file"], &variable("RAW")["raw"]),
        (&json!(true), &json!(true))
    );
    assert!(variable("P").get("file").is_none());
    assert_eq!(variable("CI_JOB_TOKEN")["masked"], true);
    assert_eq!(variable("CI_COMMIT_SHA")["value"], job["git_info"]["sha"]);
}

#[test]
fn a_job_token_is_not_shown_by_status() {
    let lab = Lab::start();
    let (_, token) = lab.running();
    let shown = lab.admin(&json!({"cmd": "status"})).to_string();
    assert!(!shown.contains(&token) && !shown.contains(&lab.token));
}
