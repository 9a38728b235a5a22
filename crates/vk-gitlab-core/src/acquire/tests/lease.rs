//! Leases: renewed under a request, counted from our sending, never believed past their end.

use std::time::Duration;

use vk_hub_proto::RequestId;
use vk_hub_proto::client::ErrorCode;

use super::runner::{LANE, Runner, config, gone, grant, job, release, renew, reservation};
use crate::acquire::{Effect, Input, Note, RequestOutcome};
use crate::{HubFailure, WithoutReservation};

fn handed_over(effects: &[Effect]) -> Option<Result<u8, WithoutReservation>> {
    effects.iter().find_map(|effect| match effect {
        Effect::TakeJob { reservation, .. } => Some(reservation.map(|id| id.as_bytes()[0])),
        _ => None,
    })
}

/// FLOW-11, ADM-10, ADM-12
#[test]
fn the_reservation_of_an_open_request_is_renewed_every_thirty_seconds() {
    let mut runner = Runner::requesting();
    for _ in 0..2 {
        runner.pass(Duration::from_millis(29_999));
        assert_eq!(runner.effects(), []);
        runner.pass(Duration::from_millis(1));
        assert_eq!(runner.effects(), [renew(1)]);
        runner.renewed(1, 90);
    }
}

/// ADM-13, ADM-29
#[test]
fn a_reservation_lost_under_a_request_aborts_nothing_and_the_job_comes_without() {
    let mut runner = Runner::requesting();
    runner.pass_secs(30);
    runner.effects();
    runner.not_renewed(1, gone());
    assert_eq!(
        runner
            .all_effects()
            .iter()
            .find(|effect| matches!(effect, Effect::Note(Note::ReservationLost { .. }))),
        Some(&Effect::Note(Note::ReservationLost {
            reservation: reservation(1),
            how: WithoutReservation::Gone
        }))
    );
    runner.pass_secs(25);
    assert_eq!(runner.effects(), [], "not renewed again");
    runner.answer(RequestOutcome::Job(job(5)), None);
    assert_eq!(
        handed_over(&runner.effects()),
        Some(Err(WithoutReservation::Gone))
    );
}

/// The ID of the one reservation that is asked for just now, from a poll that tells of room.
fn reserves_again(runner: &mut Runner, row: &str) -> RequestId {
    let effects = runner.effects();
    let polls = |effect: &Effect| matches!(effect, Effect::AskCapacity { .. });
    assert!(effects.iter().any(polls), "{row}: {effects:?}");
    assert!(!effects.contains(&renew(1)), "{row}: {effects:?}");
    assert!(!effects.contains(&release(1)), "{row}: {effects:?}");
    runner.capacity(8, 1);
    match runner.effects()[..] {
        [Effect::Reserve { request_id, .. }] => request_id,
        ref other => panic!("{row}: {other:?}"),
    }
}

/// ERR-14
#[test]
fn a_reservation_that_is_gone_is_followed_by_another_under_a_fresh_id() {
    for under_the_request in [false, true] {
        for failure in [gone(), HubFailure::coded(ErrorCode::NotFound, 404, "none")] {
            let row = format!("{under_the_request} {:?}", failure.code);
            let mut runner = Runner::ready(config());
            runner.effects();
            runner.capacity(7, 1);
            let [Effect::Reserve { request_id, .. }] = runner.effects()[..] else {
                panic!("{row}: no reservation is asked for")
            };
            runner.give(Input::ReserveAnswer {
                lane: LANE,
                answer: Ok(grant(1, 90)),
            });
            runner.take_slot();
            runner.expect_request();
            runner.pass_secs(30);
            assert_eq!(runner.effects(), [renew(1)], "{row}");
            if under_the_request {
                // The request stays open, and its answer brings nothing.
                runner.not_renewed(1, failure);
                assert_eq!(runner.effects(), [], "{row}");
                runner.no_job(None);
            } else {
                // Nothing is open while the reservation is renewed for the next request.
                runner.renewed(1, 90);
                runner.pass_secs(20);
                runner.no_job(None);
                assert_eq!(runner.effects(), [Effect::ReturnSlot, renew(1)], "{row}");
                runner.not_renewed(1, failure);
            }
            let again = reserves_again(&mut runner, &row);
            assert_ne!(again, request_id, "{row}");
            runner.give(Input::ReserveAnswer {
                lane: LANE,
                answer: Ok(grant(2, 90)),
            });
            runner.take_slot();
            runner.expect_request();
            runner.answer(RequestOutcome::Job(job(5)), None);
            let handed = handed_over(&runner.effects());
            assert_eq!(handed, Some(Ok(2)), "{row}: under the new one");
        }
    }
}

/// ADM-29
#[test]
fn a_failed_renewal_is_tried_again_while_the_lease_lasts() {
    let mut runner = Runner::requesting();
    runner.pass_secs(30);
    assert_eq!(runner.effects(), [renew(1)]);
    runner.not_renewed(1, HubFailure::transport("cut"));
    runner.pass_secs(2);
    assert_eq!(runner.effects(), [renew(1)]);
    runner.renewed(1, 90);
    runner.pass_secs(30);
    assert_eq!(runner.effects(), [renew(1)]);
}

/// ADM-27, ADM-28
#[test]
fn a_lease_believed_lapsed_is_not_renewed_and_its_job_comes_without() {
    let mut runner = Runner::requesting();
    runner.pass_secs(30);
    assert_eq!(runner.effects(), [renew(1)]);
    // The renewal's answer does not come; the lease ends 90 s after the reservation was asked for.
    runner.pass(Duration::from_millis(59_999));
    assert_eq!(runner.effects(), []);
    runner.pass(Duration::from_millis(1));
    assert_eq!(runner.effects(), [release(1)]);
    runner.renewed(1, 90);
    runner.pass_secs(100);
    assert_eq!(runner.effects(), [], "a late answer revives nothing");
    runner.answer(RequestOutcome::Job(job(5)), None);
    assert_eq!(
        handed_over(&runner.effects()),
        Some(Err(WithoutReservation::Lapsed))
    );
}

/// ADM-27
#[test]
fn a_renewed_lease_counts_from_the_renewals_sending() {
    let mut runner = Runner::requesting();
    runner.pass_secs(30);
    runner.effects();
    runner.pass_secs(20);
    runner.renewed(1, 90);
    // Sent at 30 s: the next is due at 60 s, the lease ends at 120 s.
    runner.pass(Duration::from_millis(9_999));
    assert_eq!(runner.effects(), []);
    runner.pass(Duration::from_millis(1));
    assert_eq!(runner.effects(), [renew(1)]);
    runner.pass(Duration::from_millis(59_999));
    assert_eq!(runner.effects(), []);
    runner.pass(Duration::from_millis(1));
    assert_eq!(runner.effects(), [release(1)]);
}

/// ADM-14
#[test]
fn a_job_is_handed_on_at_once_with_its_reservation() {
    let mut runner = Runner::requesting();
    runner.answer(RequestOutcome::Job(job(5)), None);
    let effects = runner.effects();
    assert_eq!(handed_over(&effects), Some(Ok(1)));
    assert!(!effects.contains(&release(1)), "it is the job's now");
    assert!(!effects.contains(&Effect::ReturnSlot), "so is the slot");
    assert!(
        matches!(effects.last(), Some(Effect::AskCapacity { .. })),
        "the next job needs room of its own: {effects:?}"
    );
}

/// FLOW-12, FLOW-24
#[test]
fn after_a_204_the_reservation_is_renewed_and_asked_on_again() {
    let mut runner = Runner::requesting();
    runner.pass_secs(50);
    runner.renewed(1, 90);
    runner.effects();
    runner.no_job(None);
    assert_eq!(runner.effects(), [Effect::ReturnSlot, renew(1)]);
    runner.renewed(1, 90);
    runner.take_slot();
    runner.expect_request();
}

/// ADM-39
#[test]
fn no_request_starts_on_a_lease_that_does_not_outlast_it() {
    let mut runner = Runner::requesting();
    runner.pass_secs(30);
    runner.effects();
    runner.not_renewed(1, HubFailure::transport("cut"));
    runner.pass(Duration::from_millis(100));
    // A 409 asks again without a fresh lease, if the old one is long enough: 59.9 s are not.
    runner.answer_status(409, None);
    runner.pass(Duration::from_millis(1000));
    let effects = runner.effects();
    assert!(
        !effects.contains(&Effect::TakeSlot { lane: LANE }),
        "{effects:?}"
    );
    runner.pass_secs(1);
    assert!(runner.effects().contains(&renew(1)));
    runner.renewed(1, 90);
    runner.take_slot();
    runner.expect_request();
}

/// ADM-19
#[test]
fn an_idle_reservation_is_renewed_once_and_then_used_or_released() {
    let mut runner = Runner::requesting();
    runner.pass_secs(20);
    runner.no_job(None);
    assert_eq!(runner.effects(), [Effect::ReturnSlot, renew(1)]);
    // The answer takes so long that no request fits into what is left.
    runner.pass_secs(31);
    runner.renewed(1, 90);
    assert_eq!(
        runner.effects(),
        [
            Effect::AskCapacity {
                after: None,
                wait_secs: 60
            },
            release(1)
        ]
    );
}

/// ADM-19, ADM-28
#[test]
fn an_idle_reservation_whose_renewal_never_succeeds_is_let_go() {
    let mut runner = Runner::requesting();
    runner.pass_secs(20);
    runner.no_job(None);
    runner.effects();
    // What is left when it fails covers no request.
    runner.pass_secs(11);
    for _ in 0..12 {
        runner.not_renewed(1, HubFailure::transport("cut"));
        runner.pass_secs(15);
    }
    let effects = runner.effects();
    let released = effects.iter().position(|effect| *effect == release(1));
    let released = released.expect("released");
    assert!(
        !effects[released..].contains(&renew(1)),
        "not renewed past its end: {effects:?}"
    );
}

/// ADM-41
#[test]
fn a_pause_longer_than_the_lease_releases_the_reservation_and_a_shorter_one_keeps_it() {
    for (retry_after, kept) in [(20, true), (89, true), (90, false), (120, false)] {
        let mut runner = Runner::requesting();
        runner.answer_status(429, Some(retry_after));
        let effects = runner.effects();
        assert_eq!(!effects.contains(&release(1)), kept, "{retry_after} s");
        runner.pass_secs(retry_after);
        let next = runner.effects();
        assert_eq!(next.contains(&renew(1)), kept, "{next:?}");
    }
}

/// ADM-41
#[test]
fn a_check_interval_longer_than_the_lease_releases_the_reservation() {
    let mut settings = config();
    settings.check_interval = Duration::from_secs(120);
    let mut runner = Runner::requesting_with(settings);
    runner.no_job(Some("x"));
    assert!(runner.effects().contains(&release(1)));
}

/// ADM-29
#[test]
fn a_release_is_tried_again_while_the_lease_may_last() {
    let mut runner = Runner::requesting();
    runner.give(Input::Drain);
    runner.no_job(None);
    assert_eq!(runner.effects(), [Effect::ReturnSlot, release(1)]);
    let mut tries = 1;
    while tries < 50 {
        runner.give(Input::ReleaseAnswer {
            reservation: reservation(1),
            answer: Err(HubFailure::transport("cut")),
        });
        runner.pass_secs(40);
        if !runner.effects().contains(&release(1)) {
            break;
        }
        tries += 1;
    }
    assert!((3..10).contains(&tries), "{tries} tries");
}
