//! Cancels.

use vk_hub_core::{Answer, Record};
use vk_hub_proto::client::{CancelMode, JobState};
use vk_hub_proto::dispatch::{RefusalReason, RunState};
use vk_hub_proto::job::FailureClass;

use crate::bench::{Bench, held_job, refused, reservation, result, start, stop};

const GRACEFUL: CancelMode = CancelMode::Graceful;
const IMMEDIATE: CancelMode = CancelMode::Immediate;

fn cancels(records: &[Record]) -> usize {
    let cancels = records
        .iter()
        .filter(|record| matches!(record, Record::JobCancel { .. }));
    cancels.count()
}

/// API-42, API-49
#[test]
fn immediate_overrides_graceful_and_never_the_reverse() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    let (taken, effects) = bench.cancel(1, GRACEFUL);
    assert_eq!(taken, Answer::CancelTaken(bench.view(1)));
    assert!(effects.contains(&stop(session, 1, GRACEFUL)));
    assert_eq!(bench.view(1).cancel, Some(GRACEFUL));
    let (_, effects) = bench.cancel(1, GRACEFUL);
    assert_eq!(effects.len(), 1, "again: the view and nothing else");
    let (_, effects) = bench.cancel(1, IMMEDIATE);
    assert!(effects.contains(&stop(session, 1, IMMEDIATE)));
    let (_, effects) = bench.cancel(1, GRACEFUL);
    assert_eq!(effects.len(), 1);
    assert_eq!(bench.view(1).cancel, Some(IMMEDIATE));
    assert_eq!(cancels(&bench.records), 2);
}

/// API-43
#[test]
fn a_cancel_after_the_end_changes_nothing() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.ends(session, 1, result());
    let before = bench.view(1);
    let (taken, _) = bench.cancel(1, IMMEDIATE);
    assert_eq!(taken, Answer::CancelTaken(before.clone()));
    assert_eq!((bench.view(1), cancels(&bench.records)), (before, 0));
}

/// API-66
#[test]
fn a_queued_job_ends_canceled_at_once() {
    let (mut bench, _) = Bench::with_node(0);
    bench.submit(1, None);
    let (taken, _) = bench.cancel(1, GRACEFUL);
    let Answer::CancelTaken(view) = taken else {
        panic!("not taken: {taken:?}");
    };
    assert_eq!(view.state, JobState::Finished);
    assert_eq!(bench.failure(1), Some(FailureClass::Canceled));
}

/// API-66
#[test]
fn a_cancel_during_starting_goes_out_after_the_acceptance() {
    let (mut bench, session) = Bench::with_node(2);
    bench.submit(1, None);
    let (_, effects) = bench.cancel(1, GRACEFUL);
    assert_eq!(effects.len(), 1, "the answer alone");
    assert_eq!(bench.view(1).state, JobState::Starting);
    let effects = bench.job_is(session, 1, RunState::Accepted);
    assert!(effects.contains(&stop(session, 1, GRACEFUL)));
}

/// API-66
#[test]
fn a_cancelled_start_that_is_refused_is_not_placed_again() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserved(session, 7);
    bench.submit(1, Some(reservation(7)));
    bench.cancel(1, GRACEFUL);
    bench.job_is(session, 1, refused(RefusalReason::Memory));
    assert_eq!(bench.failure(1), Some(FailureClass::Canceled));
    assert_eq!(bench.fleet.reservations().count(), 0);
}

/// DISP-80
#[test]
fn a_stored_cancel_goes_out_again_on_reconnect() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.close(session);
    let (_, effects) = bench.cancel(1, GRACEFUL);
    assert_eq!(effects.len(), 1, "nobody to tell");
    for _ in 0..2 {
        let session = bench.greet(1, 2);
        let effects = bench.held(session, vec![], vec![held_job(1)]);
        assert!(effects.contains(&stop(session, 1, GRACEFUL)));
        let acked = effects
            .iter()
            .position(|effect| matches!(effect, vk_hub_core::Effect::OutputAck { .. }));
        let told = effects
            .iter()
            .position(|effect| *effect == stop(session, 1, GRACEFUL));
        assert!(acked < told, "a cancel before the ack would disown the job");
    }
}

/// API-66, DISP-80
#[test]
fn a_cancel_stored_while_the_answer_to_the_start_was_lost_goes_out_with_held() {
    let (mut bench, session) = Bench::with_node(2);
    let effects = bench.submit(1, None);
    assert!(effects.contains(&start(session, 1, None)));
    bench.cancel(1, GRACEFUL);
    bench.close(session);
    let session = bench.greet(1, 2);
    let effects = bench.held(session, vec![], vec![held_job(1)]);
    let told = effects
        .iter()
        .filter(|effect| **effect == stop(session, 1, GRACEFUL));
    assert_eq!(told.count(), 1, "{effects:?}");
    assert_eq!(bench.view(1).state, JobState::Running);
}
