//! What a fleet is told that cannot be done: said clearly, and nothing is lost by it.

use serde_json::json;

use crate::fleet::{Fleet, Guests, Party, test_root};
use crate::lab::Lab;
use crate::program::eventually;

/// A job that ends well, to see that all still works.
fn hello(fleet: &Fleet, lab: &Lab) {
    let job = lab.trigger(&json!({ "name": "hello", "script": ["echo hello"] }));
    let (ended, trace) = lab.ended_as(job, "success");
    assert!(trace.contains("Job succeeded"), "{trace}");
    assert_eq!(ended["handed_out"], 1);
    lab.assert_honest();
    fleet.assert_nothing_is_left();
}

#[test]
fn a_daemons_token_for_the_hub_that_is_none_enrols_nobody_and_says_so() {
    let Some(root) = test_root("a wrong token") else {
        return;
    };
    let mut fleet = Fleet::set_up(&root, Guests::Processes);
    fleet.restart(Party::Hub);
    // A node's token is no daemon's.
    let nodes = fleet.token(&[]);
    for (token, why) in [
        ("no-token-at-all", "malformed"),
        (nodes.as_str(), "a node's"),
    ] {
        let (ended, said) = fleet.join_daemon_with(token);
        println!("{why}: {said}");
        assert!(!ended.success(), "{why}: {said}");
        assert!(said.contains("token"), "{why}: {said}");
        assert!(!said.contains(token), "{why}: the token is printed: {said}");
    }
    assert!(!fleet.path("daemon/hub/enrollment.json").exists());
}

/// GL-62
#[test]
fn a_runner_whose_token_gitlab_refuses_takes_no_job_and_says_so() {
    let Some(root) = test_root("a refused runner") else {
        return;
    };
    let mut fleet = Fleet::start(&root, Guests::Processes);
    let lab = Lab::of(&fleet, &root);
    let file = fleet.path("runner-token");
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, "glrt-nobody-knows-this").unwrap();
    fleet.restart(Party::Daemon);
    fleet.says(Party::Daemon, "GitLab refuses this runner's token");
    let log = fleet.log(Party::Daemon);
    assert!(!log.contains("glrt-nobody"), "the token is printed: {log}");
    let job = lab.trigger(&json!({ "name": "waits", "script": ["echo after all"] }));
    let mut verify = fleet.program("vk-gitlab");
    verify
        .arg("-c")
        .arg(fleet.path("gitlab.toml"))
        .arg("verify");
    let ran = verify.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(!ran.status.success() && said.contains("refused"), "{said}");
    assert_eq!(lab.job(job)["status"], "pending");
    std::fs::write(&file, good).unwrap();
    fleet.restart(Party::Daemon);
    lab.ended_as(job, "success");
    hello(&fleet, &lab);
}

/// PLACE-03
#[test]
fn a_pool_that_no_node_is_in_takes_no_job_and_says_so() {
    let Some(root) = test_root("an unknown pool") else {
        return;
    };
    let mut fleet = Fleet::start(&root, Guests::Processes);
    let lab = Lab::of(&fleet, &root);
    fleet.edit(
        "gitlab.toml",
        "check_interval = 1",
        "check_interval = 1\npool = \"gpu\"",
    );
    fleet.restart(Party::Daemon);
    let job = lab.trigger(&json!({ "name": "waits", "script": ["echo after all"] }));
    fleet.says(Party::Hub, "no node is in this pool");
    fleet.says(
        Party::Daemon,
        "no node of the fleet is in this runner's pool",
    );
    let log = fleet.log(Party::Daemon);
    assert!(log.contains("gpu"), "{log}");
    assert_eq!(lab.job(job)["status"], "pending");
    fleet.edit("gitlab.toml", "\"gpu\"", "\"default\"");
    fleet.restart(Party::Daemon);
    lab.ended_as(job, "success");
    hello(&fleet, &lab);
}

#[test]
fn daemon_and_node_that_start_before_their_hub_wait_for_it_and_say_so() {
    let Some(root) = test_root("a hub that is down") else {
        return;
    };
    let mut fleet = Fleet::start(&root, Guests::Processes);
    let lab = Lab::of(&fleet, &root);
    fleet.stop(Party::Hub);
    fleet.restart(Party::Node);
    fleet.restart(Party::Daemon);
    let job = lab.trigger(&json!({ "name": "waits", "script": ["echo after all"] }));
    for party in [Party::Node, Party::Daemon] {
        fleet.says(party, "cannot connect to the hub");
    }
    assert_eq!(lab.job(job)["status"], "pending");
    fleet.restart(Party::Hub);
    lab.ended_as(job, "success");
    hello(&fleet, &lab);
}

#[test]
fn a_job_whose_image_is_nowhere_fails_with_the_images_name() {
    let Some(root) = test_root("no such image") else {
        return;
    };
    let fleet = Fleet::start(&root, Guests::Processes);
    let lab = Lab::of(&fleet, &root);
    let image = "127.0.0.1:9/nowhere/at-all:1";
    let job = lab.trigger(&json!({ "name": "lost", "image": image, "script": ["true"] }));
    let (ended, trace) = lab.ended_as(job, "failed");
    println!("{trace}");
    assert_ne!(ended["failure_reason"], "script_failure");
    let error = trace.lines().find(|line| line.contains("ERROR"));
    assert!(error.is_some_and(|line| line.contains(image)), "{trace}");
    hello(&fleet, &lab);
}

/// SPEC-82
#[test]
fn a_job_larger_than_the_fleet_takes_fails_and_says_how_large_it_is() {
    let Some(root) = test_root("a spec over 512 KiB") else {
        return;
    };
    let mut fleet = Fleet::start(&root, Guests::Processes);
    let lab = Lab::of(&fleet, &root);
    let most = format!("echo {}", "x".repeat(500 << 10));
    for (script, fits) in [
        (vec![most.clone()], true),
        (vec![most.clone(), most], false),
    ] {
        let job = lab.trigger(&json!({ "name": "large", "script": script }));
        let status = if fits { "success" } else { "failed" };
        let ended = lab.ended(job);
        assert_eq!(ended["status"], status, "{ended}");
        if !fits {
            let trace = lab.trace(job);
            println!("{trace}");
            assert_eq!(
                ended["failure_reason"], "runner_configuration_error",
                "{trace}"
            );
            let error = trace.lines().find(|line| line.contains("ERROR")).unwrap();
            assert!(error.contains("its specification has"), "{trace}");
        }
    }
    eventually("the daemon holds no job", || {
        let text = std::fs::read_to_string(fleet.path("daemon/one.json")).unwrap();
        (!text.contains("gitlab_job")).then_some(())
    });
    fleet.log(Party::Daemon);
    hello(&fleet, &lab);
}
