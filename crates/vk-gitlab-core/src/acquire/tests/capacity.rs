//! Room before a reservation, a reservation before a request.

use std::time::Duration;

use vk_hub_proto::client::{Capacity, ErrorCode};

use super::runner::{LANE, Runner, config, grant, no_capacity, release, request_id};
use crate::HubFailure;
use crate::acquire::{Effect, Input, Note, VerifyAnswer};

/// FLOW-07, FLOW-08, FLOW-10, ADM-30
#[test]
fn a_runner_looks_for_room_then_reserves_then_takes_a_slot_then_asks() {
    let mut runner = Runner::opened(config());
    assert_eq!(
        runner.effects(),
        [Effect::Verify, Effect::DrawRequestIds { count: 2 }]
    );
    runner.feed_ids();
    assert_eq!(runner.effects(), [], "the token is not known to be taken");
    runner.give(Input::VerifyAnswer(VerifyAnswer::Taken));
    assert_eq!(runner.effects(), [Effect::WantSlot]);
    runner.give(Input::SlotFree(true));
    assert_eq!(
        runner.effects(),
        [Effect::AskCapacity {
            after: None,
            wait_secs: 60
        }]
    );
    runner.capacity(7, 3);
    assert_eq!(
        runner.effects(),
        [Effect::Reserve {
            lane: LANE,
            request_id: request_id(100),
            lease_secs: 90,
            wait_secs: 60
        }]
    );
    runner.give(Input::ReserveAnswer {
        lane: LANE,
        answer: Ok(grant(1, 90)),
    });
    runner.take_slot();
    assert_eq!(runner.expect_request(), None);
}

#[test]
fn a_pool_without_nodes_is_said_once_and_again_when_it_is_so_again() {
    let mut runner = Runner::ready(config());
    runner.effects();
    for (no_nodes, said) in [(true, 1), (true, 0), (false, 0), (true, 1)] {
        runner.give(Input::CapacityAnswer(Ok(Capacity {
            revision: 41,
            fits: 0,
            no_nodes,
        })));
        runner.pass_secs(2);
        let effects = runner.all_effects();
        let notes = effects
            .iter()
            .filter(|effect| matches!(effect, Effect::Note(Note::NoNodes)));
        assert_eq!(notes.count(), said, "{no_nodes}: {effects:?}");
    }
}

/// ADM-06
#[test]
fn no_room_means_no_reservation_and_the_poll_waits_for_a_change() {
    let mut runner = Runner::ready(config());
    runner.effects();
    runner.capacity(41, 0);
    assert_eq!(
        runner.effects(),
        [Effect::PassSlot],
        "a slot without room is of no use"
    );
    runner.pass_secs(1);
    assert_eq!(
        runner.effects(),
        [Effect::AskCapacity {
            after: Some(41),
            wait_secs: 60
        }]
    );
    runner.pass_secs(60);
    runner.capacity(41, 0);
    assert_eq!(
        runner.effects(),
        [Effect::AskCapacity {
            after: Some(41),
            wait_secs: 60
        }]
    );
    runner.capacity(42, 1);
    assert!(matches!(runner.effects()[..], [Effect::Reserve { .. }]));
}

/// ADM-31
#[test]
fn a_hub_that_does_not_answer_has_no_room_and_is_asked_less_and_less() {
    let mut runner = Runner::ready(config());
    runner.effects();
    for secs in [1, 2, 4, 8, 16, 30, 30] {
        runner.give(Input::CapacityAnswer(Err(HubFailure::transport("refused"))));
        runner.effects();
        runner.pass(Duration::from_millis(secs * 1000 - 1));
        assert_eq!(runner.effects(), [], "waits {secs} s");
        runner.pass(Duration::from_millis(secs * 250 + 1));
        assert!(matches!(runner.effects()[..], [Effect::AskCapacity { .. }]));
    }
}

/// ADM-31, ERR-18
#[test]
fn a_reservation_without_room_waits_as_asked_and_goes_back_to_the_poll() {
    let mut runner = Runner::ready(config());
    runner.effects();
    runner.capacity(7, 1);
    runner.effects();
    runner.give(Input::ReserveAnswer {
        lane: LANE,
        answer: Err(no_capacity(Some(8))),
    });
    runner.pass(Duration::from_millis(7999));
    assert_eq!(runner.effects(), [Effect::PassSlot]);
    runner.pass(Duration::from_millis(1));
    assert!(matches!(
        runner.effects()[..],
        [Effect::AskCapacity { after: None, .. }]
    ));
}

/// ERR-17, ERR-19
#[test]
fn a_reservation_whose_answer_is_lost_is_asked_again_under_its_id() {
    let mut runner = Runner::ready(config());
    runner.effects();
    runner.capacity(7, 1);
    let first = runner.effects();
    for failure in [
        HubFailure::transport("cut"),
        HubFailure::coded(ErrorCode::Internal, 500, ""),
    ] {
        runner.give(Input::ReserveAnswer {
            lane: LANE,
            answer: Err(failure),
        });
        assert_eq!(runner.effects(), []);
        runner.pass_secs(3);
        assert_eq!(runner.effects(), first, "the same request once more");
    }
    runner.give(Input::ReserveAnswer {
        lane: LANE,
        answer: Err(HubFailure::transport("cut")),
    });
    runner.pass_secs(30);
    assert!(
        runner
            .effects()
            .iter()
            .any(|effect| matches!(effect, Effect::AskCapacity { .. })),
        "a hub that keeps failing counts as capacity 0"
    );
}

/// ADM-27
#[test]
fn the_lease_of_a_repeated_reservation_counts_from_its_first_sending() {
    let mut runner = Runner::ready(config());
    runner.effects();
    runner.capacity(7, 1);
    runner.effects();
    runner.pass_secs(29);
    runner.give(Input::ReserveAnswer {
        lane: LANE,
        answer: Err(HubFailure::transport("cut")),
    });
    runner.pass_secs(2);
    assert!(matches!(runner.effects()[..], [Effect::Reserve { .. }]));
    runner.give(Input::ReserveAnswer {
        lane: LANE,
        answer: Ok(grant(1, 90)),
    });
    assert!(
        matches!(runner.effects()[..], [Effect::Renew { .. }]),
        "59 s are left of it, too few for a request"
    );
}

/// ADM-41
#[test]
fn a_grant_too_short_for_a_request_is_released() {
    let mut runner = Runner::ready(config());
    runner.effects();
    runner.capacity(7, 1);
    runner.effects();
    runner.give(Input::ReserveAnswer {
        lane: LANE,
        answer: Ok(grant(1, 59)),
    });
    assert!(runner.effects().contains(&release(1)));
    runner.pass_secs(29);
    assert_eq!(runner.effects(), []);
    runner.pass_secs(1);
    assert!(matches!(runner.effects()[..], [Effect::AskCapacity { .. }]));
}

/// ADM-40
#[test]
fn asking_again_on_a_held_reservation_needs_no_room() {
    let mut runner = Runner::requesting();
    runner.no_job(None);
    runner.ask_again(1);
    runner.pass_secs(2);
    runner.no_job(None);
    let effects = runner.effects();
    assert!(
        !effects
            .iter()
            .any(|effect| matches!(effect, Effect::AskCapacity { .. })),
        "{effects:?}"
    );
}

/// ADM-18
#[test]
fn a_runner_never_holds_more_reservations_than_requests_it_may_open() {
    let mut settings = config();
    settings.request_concurrency = 2;
    let mut runner = Runner::ready(settings);
    runner.effects();
    runner.capacity(7, 9);
    let reserves = runner.effects();
    assert_eq!(reserves.len(), 2, "{reserves:?}");
    runner.pass_secs(5);
    assert_eq!(runner.effects(), [], "and looks for no more room");
}

/// ADM-30
#[test]
fn a_slot_that_another_runner_took_first_costs_the_reservation() {
    let mut runner = Runner::ready(config());
    runner.reserve(1);
    assert_eq!(runner.effects(), [Effect::TakeSlot { lane: LANE }]);
    runner.give(Input::SlotAnswer {
        lane: LANE,
        taken: false,
    });
    assert_eq!(runner.effects(), [Effect::WantSlot, release(1)]);
    runner.give(Input::SlotFree(true));
    assert!(matches!(runner.effects()[..], [Effect::AskCapacity { .. }]));
}

/// ADM-30
#[test]
fn a_runner_at_its_own_limit_asks_for_nothing() {
    let mut settings = config();
    settings.limit = 2;
    settings.jobs = 2;
    let mut runner = Runner::ready(settings);
    runner.effects();
    runner.pass_secs(30);
    assert_eq!(runner.effects(), []);
    runner.give(Input::JobOver);
    assert!(matches!(
        runner.effects()[..],
        [Effect::ReturnSlot, Effect::AskCapacity { .. }]
    ));
}
