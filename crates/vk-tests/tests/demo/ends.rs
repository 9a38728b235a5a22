//! Runs that are ended from outside.

use rustix::process::{Pid, Signal, kill_process};

use crate::run::{Place, processes_of, ran, test_root};

/// Counts until it is stopped, and says how it ended.
const SLOW: &str = "count:\n  image: busybox\n  script:\n    - echo counting\n    - sleep 1000\n  \
                    after_script: ['echo ended as $CI_JOB_STATUS']\n\
                    later: {stage: deploy, image: busybox, script: ['echo never']}\n";

fn going(test: &str, script: &str) -> Option<(Place, crate::run::Going)> {
    let place = Place::with_processes(&test_root(test)?);
    place.file(".gitlab-ci.yml", script);
    let mut going = place.begin(&[]);
    going.until("| counting");
    Some((place, going))
}

#[test]
fn an_interrupt_cancels_the_pipeline_in_order() {
    let Some((place, going)) = going("interrupt", SLOW) else {
        return;
    };
    going.signal(Signal::INT);
    let (code, out) = going.end();
    assert_eq!(code, Some(130));
    for text in [
        "ended as canceled",
        "==> count: canceled",
        "==> later: canceled",
        "pipeline: canceled",
    ] {
        assert!(out.contains(text), "no {text:?}");
    }
    assert!(!out.contains("echo never"));
    assert_eq!(place.result()["broken"].as_array().unwrap().len(), 0);
    place.assert_nothing_is_left();
}

#[test]
fn a_second_interrupt_ends_everything_at_once() {
    let stubborn = SLOW.replace(
        "sleep 1000",
        "trap '' TERM INT; while true; do sleep 1000; done",
    );
    let Some((place, mut going)) = going("second interrupt", &stubborn) else {
        return;
    };
    going.signal(Signal::INT);
    going.until("once more ends everything at once");
    going.signal(Signal::INT);
    let (code, out) = going.end();
    assert_eq!(code, Some(130));
    assert!(!out.contains("pipeline:"), "it was not waited for");
    place.assert_nothing_is_left();
}

#[test]
fn nothing_is_left_where_the_program_is_killed() {
    let Some((place, going)) = going("kill", SLOW) else {
        return;
    };
    let before = processes_of(&place.path("tmp"));
    for party in ["vk-hub", "vk-gitlab", "vk node run", "vk node job"] {
        let found = before.iter().any(|(_, line)| line.contains(party));
        assert!(found, "{party} is none of {before:?}");
    }
    going.signal(Signal::KILL);
    let (code, _) = going.end();
    assert_eq!(code, None);
    place.assert_nothing_is_left();
}

#[test]
fn a_party_that_ends_by_itself_ends_the_run_with_its_name() {
    let Some((place, going)) = going("party", SLOW) else {
        return;
    };
    let all = processes_of(&place.path("tmp"));
    let hub = all.iter().find(|(_, line)| line.contains("vk-hub"));
    let hub = Pid::from_raw(hub.unwrap().0).unwrap();
    kill_process(hub, Signal::KILL).unwrap();
    let (code, _) = going.end();
    assert_eq!(code, Some(5));
    let log = std::fs::read_to_string(place.path("out/logs/hub.log")).unwrap();
    assert!(log.contains("the hub is up"), "{log}");
    place.assert_nothing_is_left();
}

/// A log that lacks what it must hold is a broken promise, whatever the pipeline's end.
#[test]
fn a_broken_promise_is_the_exit_code_of_a_pipeline_that_succeeded() {
    // Long enough for a word with the GitLab side.
    let brief = "count: {image: busybox, script: ['echo counting', 'sleep 5']}\n\
                 other: {image: busybox, script: ['true']}\n";
    let Some((place, going)) = going("promise", brief) else {
        return;
    };
    let socket = place.private().join("lab.sock");
    let expect = ["expect", "1", "--contains", "what is never said", "--admin"];
    let told = ran(place.lab(&expect).arg(&socket));
    assert_eq!(told.code, Some(0));
    let (code, out) = going.end();
    assert!(out.contains("pipeline: success"));
    assert_eq!(code, Some(3));
    let broken = place.result()["broken"].clone();
    assert_eq!(broken[0]["kind"], "bytes_missing", "{broken}");
    place.assert_nothing_is_left();
}
