//! Runs that are ended from outside.

use rustix::process::Signal;

use crate::run::{Place, processes_of, test_root};

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
        let found = before.iter().any(|line| line.contains(party));
        assert!(found, "{party} is none of {before:?}");
    }
    going.signal(Signal::KILL);
    let (code, _) = going.end();
    assert_eq!(code, None);
    place.assert_nothing_is_left();
}
