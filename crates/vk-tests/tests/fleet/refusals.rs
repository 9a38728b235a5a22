//! What a fleet is told that cannot be done.

use crate::fleet::{Fleet, Party, test_root};
use crate::program::eventually;
use crate::settings::Settings;

#[test]
fn a_token_that_is_none_enrols_nobody_and_says_so() {
    let Some(root) = test_root("a wrong token") else {
        return;
    };
    let fleet = Fleet::start(&root);
    let good = std::fs::read_to_string(fleet.path("token")).unwrap();
    // Used already: it enrols once. The daemon's token is none for a node at all.
    for (token, why) in [("no-token-at-all", "malformed"), (good.trim(), "used")] {
        let (ended, said) = fleet.join_again(token);
        println!("{why}: {said}");
        assert!(!ended.success(), "{why}: {said}");
        assert!(said.contains("token"), "{why}: {said}");
        assert!(!said.contains(token), "{why}: the token is printed: {said}");
    }
}

#[test]
fn a_daemon_that_starts_before_its_hub_takes_jobs_when_it_comes() {
    let Some(root) = test_root("a hub that is down") else {
        return;
    };
    let mut fleet = Fleet::start(&root);
    fleet.stop(Party::Hub);
    fleet.restart(Party::Node);
    fleet.restart(Party::Daemon);
    let (pipeline, job) = fleet.trigger(&["echo after all"]);
    eventually("the daemon says what it lacks", || {
        let log = std::fs::read_to_string(fleet.path("daemon.log")).unwrap();
        log.contains("cannot connect to the hub").then_some(())
    });
    fleet.restart(Party::Hub);
    let ended = fleet.ended(pipeline);
    let trace = fleet.trace(job);
    assert_eq!(ended["status"], "success", "{trace}");
    assert!(trace.contains("after all"), "{trace}");
    fleet.assert_nothing_is_left();
}

/// PLACE-13
#[test]
fn a_host_with_a_gitlab_runner_of_its_own_takes_jobs_only_once_it_is_said_to_have_none() {
    let Some(root) = test_root("a host with a gitlab-runner") else {
        return;
    };
    let own = tempfile::tempdir().unwrap();
    let program = own.path().join("gitlab-runner");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path: &'static str = format!("{path}:{}", own.path().display()).leak();
    let settings = Settings {
        environment: vec![("PATH", path)],
        ..Settings::default()
    };
    let mut fleet = Fleet::with(&root, &settings);
    let file = fleet.path("vk.toml");
    let none = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, none.replace("runner = \"none\"\n", "")).unwrap();
    fleet.restart(Party::Node);
    eventually("the node says why it takes none", || {
        let log = fleet.running(Party::Node).log();
        log.contains("gitlab-runner is on this host").then_some(())
    });
    // It has told the hub.
    eventually("the hub counts on it no more", || {
        let listed = fleet.hub_command(&["nodes"]).output().unwrap();
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        text.contains("takes no work").then_some(())
    });
    let (pipeline, job) = fleet.trigger(&["echo to the end"]);
    assert_eq!(fleet.lab.jobs(pipeline)[0]["handed_out"], 0);
    std::fs::write(&file, none).unwrap();
    fleet.restart(Party::Node);
    let ended = fleet.ended(pipeline);
    let trace = fleet.trace(job);
    assert_eq!(ended["status"], "success", "{trace}");
    fleet.assert_nothing_is_left();
}
