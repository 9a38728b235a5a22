//! Reconciliation: what a node names, and what it does not.

use vk_hub_core::Effect;
use vk_hub_proto::client::{CancelMode, JobState};
use vk_hub_proto::dispatch::{HeldJob, RunState};
use vk_hub_proto::job::FailureClass;
use vk_hub_proto::node_session::RefusedCode;

use crate::bench::{
    Bench, ENVELOPE, ack, give_back, held_job, held_reservation, recorded, reservation, result,
    stage, start, stop,
};

/// DISP-64, FAIL-26
#[test]
fn reservations_the_hub_does_not_know_are_released() {
    let mut bench = Bench::new();
    bench.add_node(1);
    let session = bench.greet(1, 2);
    let named = vec![
        held_reservation(reservation(1), 50),
        held_reservation(reservation(2), 0),
    ];
    let effects = bench.held(session, named, vec![]);
    assert_eq!(
        effects,
        [
            give_back(session, reservation(1)),
            give_back(session, reservation(2))
        ]
    );
}

/// DISP-65, FAIL-20
#[test]
fn jobs_given_up_or_unknown_are_cancelled_at_once() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.close(session);
    bench.pass_secs(600);
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
    let session = bench.greet(1, 2);
    let effects = bench.held(session, vec![], vec![held_job(1), held_job(9)]);
    assert_eq!(
        effects,
        [
            stop(session, 1, CancelMode::Immediate),
            stop(session, 9, CancelMode::Immediate)
        ]
    );
    assert_eq!(bench.failure(1), Some(FailureClass::Lost), "for good");
}

/// DISP-80
#[test]
fn given_up_jobs_count_against_the_cap_until_their_result_is_there() {
    let (mut bench, session) = Bench::with_node(9);
    bench.close(session);
    let session = bench.greet(1, 9);
    bench.held(session, vec![], vec![held_job(8), held_job(9)]);
    bench.operate(vk_hub_core::OperatorRequest::SetCeiling {
        node: crate::bench::node(1),
        ceiling: Some(3),
    });
    assert_eq!(bench.capacity_now().fits, 1);
    assert_eq!(bench.ends(session, 8, result()), [recorded(session, 8)]);
    assert_eq!(bench.capacity_now().fits, 2);
}

/// DISP-66
#[test]
fn followed_jobs_are_acked_at_the_offset_the_hub_holds() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.writes(session, 1, 0, 40);
    bench.synced(1, 40);
    bench.writes(session, 1, 40, 10);
    bench.close(session);
    let session = bench.greet(1, 2);
    let effects = bench.held(session, vec![], vec![held_job(1)]);
    assert_eq!(effects, [ack(session, 1, 40)]);
    let effects = bench.writes(session, 1, 40, 10);
    assert_eq!(effects, [ack(session, 1, 40)], "stored, not durable yet");
    assert_eq!(bench.synced(1, 50), [ack(session, 1, 50)]);
}

/// FAIL-04, DISP-72
#[test]
fn held_says_whether_a_start_whose_answer_was_lost_was_taken() {
    let (mut bench, session) = Bench::with_node(4);
    bench.submit(1, None);
    bench.submit(2, None);
    bench.close(session);
    let session = bench.greet(1, 4);
    let running = HeldJob {
        state: stage("get_sources"),
        ..held_job(1)
    };
    let effects = bench.held(session, vec![], vec![running]);
    let view = bench.view(1);
    assert_eq!(view.state, JobState::Running);
    assert_eq!(view.stage.as_deref(), Some("get_sources"));
    assert!(effects.contains(&start(session, 2, None)), "{effects:?}");
    assert!(!effects.contains(&start(session, 1, None)));
}

/// DISP-72
#[test]
fn an_accepted_job_the_node_does_not_name_is_lost() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.close(session);
    bench.connect(1, 2);
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
}

/// DISP-72
#[test]
fn an_absent_job_starts_again_on_the_reservation_the_node_still_holds() {
    let (mut bench, session) = Bench::with_node(1);
    bench.reserved(session, 7);
    let on = Some(reservation(7));
    bench.submit(1, on);
    bench.close(session);
    let session = bench.greet(1, 0);
    let named = vec![held_reservation(reservation(7), 60)];
    let effects = bench.held(session, named, vec![]);
    assert_eq!(effects, [start(session, 1, on)]);
    bench.job_is(session, 1, RunState::Accepted);
    assert_eq!(bench.fleet.reservations().count(), 0);
}

/// DISP-72, API-66
#[test]
fn an_absent_job_that_was_cancelled_or_is_late_does_not_start_again() {
    for cancelled in [true, false] {
        let (mut bench, session) = Bench::with_node(1);
        bench.reserved(session, 7);
        bench.submit(1, Some(reservation(7)));
        bench.close(session);
        if cancelled {
            bench.cancel(1, CancelMode::Graceful);
        } else {
            bench.pass_secs(301);
        }
        let session = bench.greet(1, 0);
        let named = vec![held_reservation(reservation(7), 60)];
        let effects = bench.held(session, named, vec![]);
        assert!(effects.contains(&give_back(session, reservation(7))));
        assert!(!effects.contains(&start(session, 1, Some(reservation(7)))));
        let ended = if cancelled {
            FailureClass::Canceled
        } else {
            FailureClass::NoCapacity
        };
        assert_eq!(bench.failure(1), Some(ended));
    }
}

/// DISP-72
#[test]
fn an_absent_job_whose_reservation_is_gone_is_placed_afresh() {
    let (mut bench, session) = Bench::with_node(1);
    bench.reserved(session, 7);
    bench.submit(1, Some(reservation(7)));
    bench.close(session);
    let session = bench.greet(1, 1);
    let effects = bench.held(session, vec![], vec![]);
    assert_eq!(effects, [start(session, 1, None)]);
}

/// DISP-78
#[test]
fn a_job_whose_recorded_was_lost_is_told_again() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.ends(session, 1, result());
    bench.close(session);
    let session = bench.greet(1, 2);
    let ended = HeldJob {
        state: RunState::Finished,
        finished: true,
        ..held_job(1)
    };
    let effects = bench.held(session, vec![], vec![ended]);
    assert_eq!(effects, [recorded(session, 1)]);
    assert_eq!(bench.fleet.nodes().next().unwrap().placed, 0);
}

/// DISP-72
#[test]
fn nothing_is_offered_or_started_before_held() {
    let mut bench = Bench::new();
    bench.add_node(1);
    let session = bench.greet(1, 4);
    let (_, offered) = bench.reserve(7, 60);
    let started = bench.submit(1, None);
    assert!(offered.is_empty() && started.len() == 1, "{started:?}");
    let effects = bench.held(session, vec![], vec![]);
    assert!(effects.contains(&start(session, 1, None)));
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Offer { .. }))
    );
}

#[test]
fn a_second_held_in_a_session_ends_it() {
    let (mut bench, session) = Bench::with_node(2);
    bench.submit(1, None);
    let effects = bench.held(session, vec![], vec![]);
    assert!(matches!(
        effects[..],
        [Effect::Close {
            code: RefusedCode::Protocol,
            ..
        }]
    ));
    assert_eq!(bench.view(1).state, JobState::Starting, "it may be taken");
}

/// ADM-02
#[test]
fn what_held_names_is_shown_by_the_heartbeats_already() {
    let (mut bench, session) = Bench::with_node(4);
    bench.running(session, 1);
    bench.reserved(session, 7);
    bench.close(session);
    let session = bench.greet(1, 2);
    let named = vec![held_reservation(reservation(7), 60)];
    bench.held(session, named, vec![held_job(1)]);
    assert_eq!(bench.capacity_now().fits, 2);
    let status = bench.fleet.nodes().next().unwrap();
    assert_eq!(status.placed, 2);
    assert_eq!(
        bench.fleet.reservations().next().unwrap().envelope,
        ENVELOPE
    );
}
