//! Job responses that no GitLab makes, to the daemon as it is built: each fails its own job.

use serde_json::{Value, json};

use crate::fleet::{Fleet, Guests, Party, test_root};
use crate::lab::Lab;
use crate::program::eventually;

const TYPE: &str = " is of another type or size than it should be";

/// What stands in a response instead, and the field that the trace names.
fn responses() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"allow_git_fetch": "yes"}), "allow_git_fetch"),
        (json!({"job_info": 7}), "job_info"),
        (json!({"git_info": {"depth": "many"}}), "git_info.depth"),
        (
            json!({"runner_info": {"timeout": "1h"}}),
            "runner_info.timeout",
        ),
        (
            json!({"variables": [{"key": "a", "value": 7}]}),
            "variables[0].value",
        ),
        (json!({"steps": "none"}), "steps"),
        (json!({"image": "debian"}), "image"),
        (json!({"services": ["postgres"]}), "services[0]"),
        (json!({"artifacts": 7}), "artifacts"),
        (json!({"cache": "all"}), "cache"),
        (json!({"credentials": [7]}), "credentials[0]"),
        (json!({"dependencies": [{"id": "x"}]}), "dependencies[0].id"),
        (json!({"hooks": true}), "hooks"),
    ]
}

/// SPEC-67, SPEC-69, CRED-01
#[test]
fn malformed_jobs_fail_in_gitlab_by_the_field_and_the_next_one_runs() {
    let Some(root) = test_root("malformed jobs") else {
        return;
    };
    let mut fleet = Fleet::start(&root, Guests::Processes);
    let lab = Lab::of(&fleet, &root);
    let rows = responses();
    let jobs: Vec<u64> = rows
        .iter()
        .map(|(response, _)| {
            lab.trigger(&json!({ "name": "bad", "script": ["true"], "response": response }))
        })
        .collect();
    for ((response, field), job) in rows.iter().zip(&jobs) {
        let (ended, trace) = lab.ended_as(*job, "failed");
        assert_eq!(
            ended["failure_reason"], "runner_system_failure",
            "{response}"
        );
        let said = format!(
            "ERROR: this runner cannot read the job that GitLab sent: the field {field}{TYPE}"
        );
        assert!(trace.contains(&said), "{response}: {trace}");
    }
    // One that breaks off behind its number and token.
    lab.inject(&json!({"on": "request", "action": "truncate"}));
    let cut = lab.trigger(&json!({ "name": "cut", "script": ["true"] }));
    let (_, trace) = lab.ended_as(cut, "failed");
    assert!(trace.contains("it did not come whole: "), "{trace}");
    lab.assert_honest();
    // One that nobody can name to GitLab is told of, and is all that is lost.
    let lost =
        lab.trigger(&json!({ "name": "lost", "script": ["true"], "response": {"token": null} }));
    fleet.says(Party::Daemon, "it has no token that can be sent");
    let good = lab.trigger(&json!({ "name": "good", "script": ["echo still here"] }));
    let (_, trace) = lab.ended_as(good, "success");
    assert!(trace.contains("still here"), "{trace}");
    let broken = eventually("the lost job is on the list", || {
        let broken = lab.broken();
        (!broken.is_empty()).then_some(broken)
    });
    let lines: Vec<Value> = broken
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.iter().all(|line| line["job"] == lost), "{broken}");
    let log = fleet.log(Party::Daemon);
    assert!(!log.contains("glcbt-"), "a token is printed: {log}");
    fleet.assert_nothing_is_left();
}
