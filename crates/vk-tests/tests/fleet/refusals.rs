//! What a fleet is told that cannot be done.

use crate::fleet::{Fleet, Party, test_root};
use crate::program::eventually;

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
