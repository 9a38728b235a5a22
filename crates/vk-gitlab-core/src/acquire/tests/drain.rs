//! Shutdown.

use super::runner::{LANE, Runner, config, grant, job, release, reservation};
use crate::acquire::{Effect, Input, RequestOutcome};

/// GL-75
#[test]
fn a_drain_with_nothing_open_is_over_at_once_and_nothing_is_asked_after() {
    let mut runner = Runner::ready(config());
    runner.capacity(7, 0);
    runner.effects();
    runner.give(Input::Drain);
    assert_eq!(runner.effects(), [Effect::Drained]);
    runner.capacity(8, 5);
    runner.pass_secs(3600);
    assert_eq!(runner.effects(), []);
}

/// ADM-13, ADM-37
#[test]
fn a_drain_waits_for_the_open_request_and_hands_on_the_job_it_brings() {
    let mut runner = Runner::requesting();
    runner.give(Input::Drain);
    assert_eq!(runner.effects(), []);
    runner.pass_secs(30);
    assert!(
        matches!(runner.effects()[..], [Effect::Renew { .. }]),
        "its reservation is kept alive"
    );
    runner.renewed(1, 90);
    runner.answer(RequestOutcome::Job(job(5)), None);
    assert!(matches!(
        runner.effects()[..],
        [
            Effect::TakeJob {
                reservation: Ok(_),
                ..
            },
            Effect::Drained
        ]
    ));
}

/// ADM-37
#[test]
fn a_drain_releases_the_reservation_of_a_request_that_brings_no_job() {
    let mut runner = Runner::requesting();
    runner.give(Input::Drain);
    runner.no_job(None);
    assert_eq!(runner.effects(), [Effect::ReturnSlot, release(1)]);
    runner.give(Input::ReleaseAnswer {
        reservation: reservation(1),
        answer: Ok(()),
    });
    assert_eq!(runner.effects(), [Effect::Drained]);
}

/// GL-75
#[test]
fn a_drain_during_a_reservation_waits_for_its_answer_and_releases_it() {
    let mut runner = Runner::ready(config());
    runner.effects();
    runner.capacity(7, 1);
    runner.effects();
    runner.give(Input::Drain);
    assert_eq!(runner.effects(), []);
    runner.give(Input::ReserveAnswer {
        lane: LANE,
        answer: Ok(grant(1, 90)),
    });
    assert_eq!(runner.effects(), [Effect::PassSlot, release(1)]);
}
