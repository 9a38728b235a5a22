//! Approval and the state file.

use vk_hub_proto::relay_session::{RelayRunnerState, ServerStatus};

use super::runner::{Runner, config, job, release, renew, reservation};
use crate::acquire::{Config, Effect, Input, Note, RequestOutcome, Session};

fn required() -> Config {
    Config {
        session: Session::Required,
        ..config()
    }
}

/// SESS-09, SESS-10, ADM-30
#[test]
fn nothing_is_asked_before_the_first_status_and_asking_starts_with_approved() {
    let mut runner = Runner::ready(required());
    runner.effects();
    runner.pass_secs(300);
    assert_eq!(runner.effects(), []);
    assert_eq!(
        runner.core.beat(runner.now, "ci".to_owned()).state,
        RelayRunnerState::ServerPending
    );
    runner.give(Input::Server(ServerStatus::Approved));
    assert!(matches!(runner.effects()[..], [Effect::AskCapacity { .. }]));
}

/// SESS-11, SESS-12, SESS-13
#[test]
fn nothing_is_asked_while_the_server_is_pending_rejected_or_rebound() {
    for status in [
        ServerStatus::Pending,
        ServerStatus::Rejected,
        ServerStatus::Rebound,
    ] {
        let mut runner = Runner::ready(required());
        runner.effects();
        runner.give(Input::Server(status));
        runner.pass_secs(3600);
        assert_eq!(runner.effects(), [], "{status:?}");
    }
}

/// SESS-14
#[test]
fn nothing_is_asked_once_the_relay_is_refused_for_good() {
    let mut runner = Runner::ready(required());
    runner.give(Input::RelayRefused);
    runner.effects();
    runner.give(Input::Server(ServerStatus::Approved));
    runner.pass_secs(3600);
    assert_eq!(runner.effects(), []);
}

/// ADM-13, SESS-23
#[test]
fn a_status_that_leaves_approved_aborts_nothing_and_the_job_it_brings_is_handed_on() {
    for status in [
        ServerStatus::Pending,
        ServerStatus::Rejected,
        ServerStatus::Rebound,
    ] {
        let mut runner = Runner::ready(required());
        runner.give(Input::Server(ServerStatus::Approved));
        runner.reserve(1);
        runner.take_slot();
        runner.expect_request();
        runner.give(Input::Server(status));
        assert_eq!(runner.effects(), [], "{status:?}: the request stays open");
        runner.pass_secs(30);
        assert_eq!(runner.effects(), [renew(1)], "{status:?}: its room is kept");
        runner.renewed(1, 90);
        runner.answer(RequestOutcome::Job(job(5)), None);
        let effects = runner.effects();
        let [
            Effect::TakeJob {
                reservation: under, ..
            },
        ] = &effects[..]
        else {
            panic!("{status:?}: {effects:?}")
        };
        assert_eq!(*under, Ok(reservation(1)), "{status:?}");
        runner.pass_secs(300);
        assert_eq!(
            runner.effects(),
            [],
            "{status:?}: and no other is asked for"
        );
    }
}

/// SESS-14, SESS-23
#[test]
fn a_relay_that_is_refused_for_good_aborts_no_request_either() {
    let mut runner = Runner::requesting();
    runner.give(Input::RelayRefused);
    assert_eq!(runner.effects(), [], "the request stays open");
    runner.answer(RequestOutcome::Job(job(5)), None);
    assert!(matches!(runner.effects()[..], [Effect::TakeJob { .. }]));
}

/// ADM-41
#[test]
fn a_reservation_is_released_once_the_status_leaves_approved() {
    let mut runner = Runner::ready(required());
    runner.give(Input::Server(ServerStatus::Approved));
    runner.reserve(1);
    runner.give(Input::Server(ServerStatus::Pending));
    runner.take_slot();
    assert_eq!(
        runner.effects(),
        [Effect::ReturnSlot, release(1)],
        "and no request goes out"
    );
}

/// STATE-22
#[test]
fn a_state_file_that_cannot_be_written_stops_the_asking() {
    let mut runner = Runner::requesting();
    runner.give(Input::StoreFailed {
        why: "no space left".to_owned(),
    });
    assert!(
        runner
            .all_effects()
            .iter()
            .any(|effect| matches!(effect, Effect::Note(Note::StoreFailed { .. })))
    );
    runner.no_job(None);
    assert_eq!(runner.effects(), [Effect::ReturnSlot, release(1)]);
    runner.pass_secs(300);
    assert_eq!(runner.effects(), []);
    runner.give(Input::StoreWorks);
    let effects = runner.all_effects();
    assert!(effects.contains(&Effect::Note(Note::StoreWorks)));
    let asks = |effect: &Effect| matches!(effect, Effect::AskCapacity { .. });
    assert!(effects.iter().any(asks), "{effects:?}");
}
