//! What an operator does on a node's host: `vk check`, `vk node drain`.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::fleet::{Fleet, Guests, Party, test_root};
use crate::program::{eventually, run};

/// Verdicts by check, and what was said.
fn checked(command: &mut Command) -> (Output, BTreeMap<String, (String, Value)>) {
    let output = command.args(["--json"]).output().unwrap();
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let by_name = findings.into_iter().map(|finding| {
        let text = |key: &str| finding[key].as_str().unwrap().to_owned();
        (text("check"), (text("verdict"), finding))
    });
    (output, by_name.collect())
}

fn check(fleet: &Fleet) -> Command {
    let mut command = fleet.program("vk");
    command
        .arg("check")
        .arg("--config")
        .arg(fleet.path("vk.toml"));
    command
}

#[test]
fn a_host_that_runs_jobs_passes_every_check_and_each_fault_is_told_with_its_remedy() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let mut fleet = Fleet::start(&root, Guests::Processes);
    let (output, findings) = checked(&mut check(&fleet));
    assert!(output.status.success(), "{findings:#?}");
    for (name, (verdict, finding)) in &findings {
        let not_here = ["bundle", "network", "registry", "kvm"].contains(&name.as_str());
        let may_be_small = ["disk", "memory"].contains(&name.as_str()) && verdict == "warn";
        let expected = if not_here { "skipped" } else { "ok" };
        assert!(verdict == expected || may_be_small, "{finding}");
    }
    assert_eq!(findings.len(), 14);

    let state = fleet.path("node");
    fs::set_permissions(&state, Permissions::from_mode(0o755)).unwrap();
    fleet.stop(Party::Hub);
    let (output, findings) = checked(&mut check(&fleet));
    assert_eq!(output.status.code(), Some(1));
    let (verdict, finding) = &findings["disk"];
    assert_eq!(verdict, "fail");
    let remedy = finding["remedy"].as_str().unwrap();
    assert_eq!(remedy, format!("chmod 700 {}", state.display()));
    let (verdict, finding) = &findings["hub"];
    assert_eq!(verdict, "fail");
    assert!(
        finding["what"].as_str().unwrap().contains("localhost"),
        "{finding}"
    );
    fs::set_permissions(&state, Permissions::from_mode(0o700)).unwrap();

    fleet.stop(Party::Node);
    let mut only = check(&fleet);
    let (output, findings) = checked(only.args(["--only", "daemon"]));
    // It may be started later: no reason to fail.
    assert!(output.status.success());
    assert_eq!(findings["daemon"].0, "warn");

    fleet.edit("vk.toml", "[executor]", "[executer]");
    let (output, findings) = checked(&mut check(&fleet));
    assert_eq!(output.status.code(), Some(1));
    let what = findings["config"].1["what"].as_str().unwrap().to_owned();
    assert!(
        what.contains("vk.toml") && what.contains("executer"),
        "{what}"
    );
    assert!(
        findings
            .iter()
            .all(|(name, (verdict, _))| name == "config" || verdict == "skipped")
    );
}

#[test]
fn a_check_boots_a_machine_and_says_what_lacks_where_it_cannot() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let bundle = root.join("guest");
    let boots = |bundle: &Path| {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("vk.toml");
        let text = format!(
            "state_dir = \"state\"\n[node]\nrunner = \"none\"\n[executor.vm]\nbundle = \"{}\"\n",
            bundle.display()
        );
        fs::write(&file, text).unwrap();
        let mut command = Command::new(root.join("bin/vk"));
        command.args(["check", "--only", "bundle", "--only", "boot", "--config"]);
        checked(command.arg(&file))
    };
    let (output, findings) = boots(&bundle);
    assert!(output.status.success(), "{findings:#?}");
    let what = findings["boot"].1["what"].as_str().unwrap();
    assert!(what.contains("its agent answered after"), "{what}");

    let (output, findings) = boots(&bundle.join("nowhere"));
    assert_eq!(output.status.code(), Some(1));
    for name in ["bundle", "boot"] {
        let (verdict, finding) = &findings[name];
        assert_eq!(verdict, "fail");
        assert!(!finding["remedy"].as_str().unwrap().is_empty(), "{finding}");
    }
}

#[test]
fn a_drained_node_gets_no_job_until_it_is_taken_back() {
    let Some(root) = test_root("vk node drain") else {
        return;
    };
    let fleet = Fleet::start(&root, Guests::Processes);
    let node = |arguments: &[&str]| {
        let mut command = fleet.program("vk");
        command.arg("node").args(arguments).arg("--config");
        run(command.arg(fleet.path("vk.toml")))
    };
    let hub_says = |word: &str| {
        eventually(&format!("the hub says {word}"), || {
            let text = run(&mut fleet.hub_command(&["nodes"]));
            text.contains(word).then_some(())
        });
    };
    assert_eq!(node(&["drain", "--wait"]), "drained\n");
    hub_says("drained");
    let text = node(&["undrain"]);
    assert!(text.starts_with("ready"), "{text}");
    hub_says("ready");
}
