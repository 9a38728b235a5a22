//! Nodes that go away.

use std::time::Duration;

use vk_hub_core::{Effect, Input};
use vk_hub_proto::client::JobState;
use vk_hub_proto::job::FailureClass;
use vk_hub_proto::node_session::RefusedCode;

use crate::bench::{Bench, ack, held_job};

/// FAIL-30
#[test]
fn a_session_silent_for_three_heartbeats_is_closed() {
    let (mut bench, session) = Bench::with_node(2);
    assert_eq!(bench.pass(Duration::from_millis(14_999)), []);
    bench.step(Input::Alive { session });
    assert_eq!(bench.pass(Duration::from_millis(14_999)), []);
    let effects = bench.pass(Duration::from_millis(1));
    let [
        Effect::Close {
            session: closed,
            code,
            ..
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert_eq!((*closed, *code), (session, RefusedCode::Internal));
    assert_eq!(bench.beat(session, 2), [], "what comes later is ignored");
    assert_eq!(bench.capacity_now().fits, 0);
}

/// FAIL-17, FAIL-18
#[test]
fn a_job_is_lost_300_s_after_its_node_became_unreachable_and_not_before() {
    let (mut bench, session) = Bench::with_node(2);
    bench.stay(session, 100);
    bench.running(session, 1);
    bench.close(session);
    bench.pass(Duration::from_millis(314_999));
    assert_eq!(bench.view(1).state, JobState::Running);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
}

/// FAIL-17
#[test]
fn a_node_out_of_touch_for_less_keeps_its_job() {
    let (mut bench, session) = Bench::with_node(2);
    bench.stay(session, 100);
    bench.running(session, 1);
    for _ in 0..4 {
        let session = bench.fleet.nodes().next().unwrap().session.unwrap().0;
        bench.close(session);
        bench.pass_secs(300);
        let session = bench.greet(1, 2);
        let effects = bench.held(session, vec![], vec![held_job(1)]);
        assert_eq!(effects, [ack(session, 1, 0)]);
    }
    assert_eq!(bench.view(1).state, JobState::Running);
}

/// FAIL-17, FAIL-31
#[test]
fn a_session_without_held_does_not_end_the_silence() {
    let (mut bench, session) = Bench::with_node(2);
    bench.stay(session, 100);
    bench.running(session, 1);
    bench.submit(2, None);
    bench.close(session);
    for _ in 0..40 {
        let session = bench.greet(1, 2);
        bench.stay(session, 8);
    }
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
    assert_eq!(bench.failure(2), Some(FailureClass::Lost), "starting, too");
}

/// FAIL-30
#[test]
fn silence_adds_up_over_restarts_of_the_hub_without_its_downtime_and_redial_window() {
    let (mut bench, session) = Bench::with_node(2);
    bench.stay(session, 100);
    bench.running(session, 1);
    bench.close(session);
    bench.pass_secs(200);
    bench.now = bench.now.after(Duration::from_secs(3_600));
    bench.restart();
    // 15 + 300 s in all; the clock's record is at most 30 s old; the window is 60 s.
    bench.pass_secs(60 + 114);
    assert_eq!(bench.view(1).state, JobState::Running);
    bench.pass_secs(32);
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
}

/// FAIL-30
#[test]
fn silence_that_began_with_the_hubs_own_death_adds_up_too() {
    let (mut bench, session) = Bench::with_node(2);
    bench.stay(session, 100);
    bench.running(session, 1);
    let mut lives = 0;
    while bench.view(1).state == JobState::Running {
        lives += 1;
        assert!(lives < 5, "it never ends");
        bench.restart();
        bench.pass_secs(60 + 150);
    }
    assert_eq!(lives, 3, "150 s each, less what the clock's record misses");
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
}

/// FAIL-30
#[test]
fn a_node_that_comes_back_within_the_window_after_a_restart_keeps_its_job() {
    let (mut bench, session) = Bench::with_node(2);
    bench.stay(session, 100);
    bench.running(session, 1);
    bench.close(session);
    bench.pass_secs(300);
    bench.restart();
    bench.pass_secs(59);
    let session = bench.greet(1, 2);
    bench.held(session, vec![], vec![held_job(1)]);
    bench.restart();
    bench.pass_secs(300);
    assert_eq!(
        bench.view(1).state,
        JobState::Running,
        "silence ended between"
    );
}

#[test]
fn the_jobs_of_a_removed_node_are_lost_at_once() {
    let (mut bench, session) = Bench::with_node(3);
    bench.running(session, 1);
    bench.reserved(session, 7);
    let remove = vk_hub_core::OperatorRequest::RemoveNode {
        node: crate::bench::node(1),
    };
    let (_, effects) = bench.operate(remove.clone());
    assert!(effects.iter().any(|effect| matches!(
        effect,
        Effect::Close {
            code: RefusedCode::Revoked,
            ..
        }
    )));
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
    assert_eq!(bench.fleet.reservations().count(), 0);
    assert_eq!(bench.fleet.nodes().count(), 0);
    bench.operate(remove);
    let (_, effects) = bench.open(1, 3);
    assert!(matches!(
        effects[..],
        [Effect::Close {
            code: RefusedCode::NotEnrolled,
            ..
        }]
    ));
}
