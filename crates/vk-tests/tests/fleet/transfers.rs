//! A job's own transfers: between its node and GitLab, with nobody in between.

use std::fs;

use serde_json::{Value, json};

use crate::fleet::{Fleet, Party, test_root};
use crate::program::{eventually, processes_of};
use crate::settings::Settings;

/// What is masked in the log.
const VALUE: &str = "vK9-Zq7-Rw2-Tm4-Xc8";

/// Has GitLab take no upload until it is told otherwise.
fn hold_uploads(fleet: &Fleet) {
    fleet.lab.ask(&json!({
        "cmd": "inject", "on": "upload", "action": { "status": 503 }, "retry_after": 4,
        "forever": true,
    }));
}

/// Waits for the first upload that is not taken.
fn upload_is_held(fleet: &Fleet) {
    eventually("an upload is tried", || {
        let faults = fleet.lab.ask(&json!({ "cmd": "faults" }));
        (faults["faults"][0]["hit"].as_u64()? > 0).then_some(())
    });
}

fn take_uploads(fleet: &Fleet) {
    fleet.lab.ask(&json!({ "cmd": "clear_faults" }));
}

/// Bytes anywhere below a directory.
fn holds(directory: &std::path::Path, text: &str) -> bool {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.any(|path| match path.is_dir() {
        true => holds(&path, text),
        false => {
            let bytes = fs::read(&path).unwrap_or_default();
            bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        }
    })
}

/// FLOW-03, FLOW-04, FLOW-18, FLOW-21, ART-01, CRED-06, GUEST-03
#[test]
fn artifacts_reach_gitlab_while_hub_and_daemon_are_down_and_the_result_waits_for_the_output() {
    let Some(root) = test_root("transfers of a job") else {
        return;
    };
    let settings = Settings {
        programs: "bin",
        ..Settings::default()
    };
    let mut fleet = Fleet::with(&root, &settings);
    hold_uploads(&fleet);
    let job = json!([{
        "name": "job",
        "image": "busybox",
        "variables": { "DEPLOY": { "value": VALUE, "masked": true } },
        "script": ["cat file", "echo \"value $DEPLOY\"", "cp file out"],
        "after_script": ["echo after the script"],
        "artifacts": { "paths": ["out"] },
    }]);
    let (pipeline, jobs) = fleet.lab.trigger(&job);
    upload_is_held(&fleet);
    let (_, directory) = fleet.job_processes().remove(0);
    let guest = processes_of(&directory);
    let has_vm = guest.iter().any(|(_, line)| line.contains("qemu"));
    assert!(has_vm, "no machine among {guest:?}");
    // The hub has the output up to here, masked; the node has never had it otherwise.
    eventually("the hub has output", || {
        holds(&fleet.path("hub"), "value [MASKED]").then_some(())
    });
    assert!(!holds(&fleet.path("hub"), VALUE));
    assert!(
        !fs::read_to_string(directory.join("output"))
            .unwrap()
            .contains(VALUE)
    );

    fleet.stop(Party::Daemon);
    fleet.stop(Party::Hub);
    take_uploads(&fleet);
    let arrived = eventually("the artifact arrives", || {
        let job = fleet.lab.jobs(pipeline).remove(0);
        (!job["artifacts"].as_array()?.is_empty()).then_some(job)
    });
    assert_eq!(arrived["artifacts"][0]["filename"], "artifacts.zip");
    eventually("the job has its result", || {
        directory.join("result.json").exists().then_some(())
    });
    let shown = fleet.lab.jobs(pipeline).remove(0);
    assert_eq!(shown["finished_ms"], Value::Null, "{shown}");

    fleet.restart(Party::Hub);
    fleet.restart(Party::Daemon);
    let ended = fleet.ended(pipeline);
    let trace = fleet.trace(jobs[0]);
    assert_eq!(ended["status"], "success", "{trace}");
    let mut rest = trace.as_str();
    // One stage after the other, to the last byte.
    for line in [
        "Preparing environment",
        "Getting source from Git repository",
        "what the project holds",
        "value [MASKED]",
        "after the script",
        "Uploading artifacts for successful job",
        "to coordinator... 503",
        "201 Created",
        "Cleaning up project directory",
        "Job succeeded",
    ] {
        let (_, behind) = rest
            .split_once(line)
            .unwrap_or_else(|| panic!("no {line:?} in {trace}"));
        rest = behind;
    }
    fleet.assert_nothing_is_left();
}

/// FAIL-21
#[test]
fn uploads_of_a_job_that_gitlab_has_ended_fail_and_harm_nothing() {
    let Some(root) = test_root("uploads after the end") else {
        return;
    };
    let mut fleet = Fleet::start(&root);
    hold_uploads(&fleet);
    let job = |name: &str| {
        json!([{
            "name": name, "script": ["echo made > out"], "artifacts": { "paths": ["out"] },
        }])
    };
    let (pipeline, jobs) = fleet.lab.trigger(&job("one"));
    upload_is_held(&fleet);
    let (_, directory) = fleet.job_processes().remove(0);
    // Nobody tells the node.
    fleet.stop(Party::Daemon);
    fleet.stop(Party::Hub);
    fleet
        .lab
        .ask(&json!({ "cmd": "cancel", "job": jobs[0], "force": true }));
    take_uploads(&fleet);
    let result = eventually("the job has its result", || {
        fs::read(directory.join("result.json")).ok()
    });
    let result: Value = serde_json::from_slice(&result).unwrap();
    assert_eq!(result["failure"], "external_dependency", "{result}");
    assert_eq!(result["artifacts"][0]["state"], "failed", "{result}");
    let output = fs::read_to_string(directory.join("output")).unwrap();
    assert!(
        output.contains("to coordinator... 403 Forbidden"),
        "{output}"
    );

    fleet.restart(Party::Hub);
    fleet.restart(Party::Daemon);
    let shown = fleet.lab.jobs(pipeline).remove(0);
    assert_eq!(shown["status"], "canceled", "{shown}");
    assert_eq!(shown["artifacts"], json!([]), "{shown}");
    fleet.wait_until_nothing_is_left();
    let (later, _) = fleet.lab.trigger(&job("two"));
    let ended = fleet.ended(later);
    assert_eq!(ended["status"], "success", "{ended}");
    fleet.wait_until_nothing_is_left();
}
