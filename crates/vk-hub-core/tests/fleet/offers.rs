//! Reservations: offered, granted, renewed, released, lost.

use std::time::Duration;

use vk_hub_core::{Answer, Effect, Input, Request};
use vk_hub_proto::client::{ErrorCode, ReservationGrant};
use vk_hub_proto::dispatch::{GoneWhy, LeaseState, OfferReply, RefusalReason, RunState};

use crate::bench::{
    Bench, ENVELOPE, answer, code, digest, give_back, held_reservation, node, offer, placement,
    relay, request_id, reservation, start,
};

fn gone(why: GoneWhy) -> LeaseState {
    LeaseState::Gone { why }
}

fn held(remaining_secs: u32) -> LeaseState {
    LeaseState::Held { remaining_secs }
}

/// The ID counted on from `n`'s.
fn next(n: u8, by: u8) -> vk_hub_proto::ReservationId {
    let mut bytes = *reservation(n).as_bytes();
    bytes[15] += by;
    vk_hub_proto::ReservationId::from_bytes(bytes)
}

/// FLOW-09, API-21
#[test]
fn an_envelope_is_offered_to_one_node_after_the_other_until_one_accepts() {
    let (mut bench, first) = Bench::with_node(2);
    bench.add_node(2);
    let second = bench.connect(2, 3);
    let (to, effects) = bench.reserve(7, 60);
    assert_eq!(effects, [offer(second, reservation(7))], "the roomier one");
    let effects = bench.refuses(second, reservation(7), RefusalReason::Memory);
    assert_eq!(effects, [offer(first, next(7, 1))]);
    let effects = bench.accepts(first, next(7, 1));
    let grant = ReservationGrant {
        reservation: next(7, 1),
        node: node(1),
        envelope: ENVELOPE,
        lease_secs: 90,
    };
    assert_eq!(answer(&effects, to), Some(Answer::Granted(grant)));
    assert_eq!(bench.fleet.waiting(), 0);
}

/// API-20
#[test]
fn candidates_are_in_the_pool_carry_the_labels_are_ready_and_have_room() {
    let mut bench = Bench::new();
    let mut sessions = Vec::new();
    for n in 1..=5 {
        bench.add_node(n);
        let session = bench.connect(n, if n == 4 { 0 } else { 2 });
        let labels: &[&str] = if n == 2 { &[] } else { &["large"] };
        let told = crate::bench::inventory(4, labels);
        bench.from(session, vk_hub_core::FromNode::Inventory(Box::new(told)));
        sessions.push(session);
    }
    let mut draining = crate::bench::ready();
    draining.state = Some(vk_hub_proto::node_session::NodeState::Draining);
    let told = vk_hub_core::FromNode::Report(Box::new(draining));
    bench.from(sessions[2], told);
    bench.operate(vk_hub_core::OperatorRequest::SetPools {
        node: node(1),
        pools: vec!["other".parse().unwrap()],
    });
    let mut wanted = placement();
    wanted.labels = vec!["large".parse().unwrap()];
    let request = Request::Reserve {
        request: vk_hub_proto::client::ReservationRequest {
            request_id: request_id(7),
            placement: wanted,
            lease_secs: 90,
            wait_secs: 60,
        },
        digest: digest(7),
        fresh: reservation(7),
    };
    let (_, effects) = bench.send(relay(1), request);
    assert_eq!(effects, [offer(sessions[4], reservation(7))]);
    let effects = bench.refuses(sessions[4], reservation(7), RefusalReason::Memory);
    assert_eq!(effects, [], "nobody else");
}

/// API-70
#[test]
fn a_reservation_request_is_held_for_a_minute_at_most() {
    let mut bench = Bench::new();
    let (to, _) = bench.reserve(7, 4_000);
    let almost = Duration::from_millis(59_999);
    assert_eq!(bench.pass(almost), []);
    let effects = bench.pass(Duration::from_millis(1));
    let refused = answer(&effects, to).expect("an answer");
    assert_eq!(code(&refused), (503, ErrorCode::NoCapacity));
}

/// API-22, ERR-28
#[test]
fn when_no_node_accepts_in_time_the_answer_is_no_capacity() {
    let (mut bench, session) = Bench::with_node(2);
    let (to, _) = bench.reserve(7, 10);
    let mut asked = 1;
    let mut effects = bench.refuses(session, reservation(7), RefusalReason::Disk);
    for _ in 0..9 {
        effects.extend(bench.stay(session, 1));
        while let Some(position) = effects
            .iter()
            .position(|effect| matches!(effect, Effect::Offer { .. }))
        {
            effects.remove(position);
            let id = next(7, asked);
            asked += 1;
            effects.extend(bench.refuses(session, id, RefusalReason::Disk));
        }
    }
    assert_eq!(answer(&effects, to), None);
    let effects = bench.stay(session, 2);
    let refused = answer(&effects, to).expect("an answer");
    assert_eq!(code(&refused), (503, ErrorCode::NoCapacity));
    let Answer::Refused(refusal) = refused else {
        panic!("not refused");
    };
    assert_eq!(refusal.error.retry_after_secs, Some(5));
    assert!(refusal.error.error.contains("disk is short"), "{refusal:?}");
    assert_eq!(asked, 5, "every 2 s");
}

/// API-62
#[test]
fn after_a_round_of_refusals_a_node_is_asked_again_when_its_room_grows_or_after_2_s() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserve(7, 60);
    assert_eq!(
        bench.refuses(session, reservation(7), RefusalReason::Memory),
        []
    );
    assert_eq!(bench.pass(Duration::from_millis(1_999)), []);
    assert_eq!(
        bench.pass(Duration::from_millis(1)),
        [offer(session, next(7, 1))]
    );
    bench.refuses(session, next(7, 1), RefusalReason::Memory);
    assert_eq!(bench.beat(session, 3), [offer(session, next(7, 2))]);
}

/// API-62
#[test]
fn one_offer_is_made_even_when_the_client_does_not_wait() {
    let (mut bench, session) = Bench::with_node(1);
    let (to, effects) = bench.reserve(7, 0);
    assert_eq!(effects, [offer(session, reservation(7))]);
    assert_eq!(bench.pass(Duration::from_millis(4_999)), []);
    assert!(answer(&bench.accepts(session, reservation(7)), to).is_some());
    let (to, effects) = bench.reserve(8, 0);
    assert_eq!(effects, [], "no room");
    let effects = bench.step(Input::Timeout);
    let refused = answer(&effects, to).expect("an answer");
    assert_eq!(code(&refused), (503, ErrorCode::NoCapacity));
}

/// API-62
#[test]
fn an_offer_without_answer_is_abandoned_and_released_if_accepted_late() {
    let (mut bench, session) = Bench::with_node(1);
    bench.add_node(2);
    let other = bench.connect(2, 1);
    bench.reserve(7, 60);
    assert_eq!(bench.stay(session, 4), []);
    bench.step(Input::Alive { session: other });
    assert_eq!(bench.pass_secs(1), [offer(other, next(7, 1))]);
    assert_eq!(
        bench.accepts(session, reservation(7)),
        [give_back(session, reservation(7))]
    );
    assert_eq!(
        bench.refuses(session, reservation(7), RefusalReason::Memory),
        []
    );
}

/// API-62
#[test]
fn only_the_node_that_was_asked_can_accept() {
    let (mut bench, session) = Bench::with_node(1);
    bench.add_node(2);
    let other = bench.connect(2, 0);
    let (to, _) = bench.reserve(7, 60);
    let effects = bench.accepts(other, reservation(7));
    assert_eq!(effects, [give_back(other, reservation(7))]);
    let effects = bench.accepts(session, reservation(7));
    assert!(answer(&effects, to).is_some());
}

#[test]
fn an_answer_this_hub_does_not_know_counts_as_a_refusal() {
    let (mut bench, session) = Bench::with_node(1);
    let (to, _) = bench.reserve(7, 0);
    let effects = bench.from(
        session,
        vk_hub_core::FromNode::OfferReply {
            reservation: reservation(7),
            reply: OfferReply::Other,
        },
    );
    let refused = answer(&effects, to).expect("an answer");
    assert_eq!(code(&refused), (503, ErrorCode::NoCapacity));
}

/// API-61
#[test]
fn a_grant_nobody_waits_for_stays_under_its_request_until_its_lease_ends() {
    let (mut bench, session) = Bench::with_node(2);
    let (to, _) = bench.reserve(7, 60);
    bench.step(Input::HungUp { to });
    assert_eq!(bench.accepts(session, reservation(7)), []);
    bench.stay(session, 30);
    let Answer::Granted(grant) = bench.ask(Bench::reserve_request(7, 60)) else {
        panic!("no grant");
    };
    assert_eq!(grant.reservation, reservation(7));
    assert_eq!(grant.lease_secs, 60, "what is left of it");
    bench.stay(session, 60);
    let again = bench.ask(Bench::reserve_request(7, 60));
    assert_eq!(code(&again), (410, ErrorCode::ReservationGone));
}

/// API-61
#[test]
fn a_request_whose_client_hung_up_asks_no_further_node() {
    let (mut bench, session) = Bench::with_node(2);
    let (to, _) = bench.reserve(7, 60);
    bench.step(Input::HungUp { to });
    bench.refuses(session, reservation(7), RefusalReason::Memory);
    assert_eq!(bench.stay(session, 10), []);
    let (to, effects) = bench.reserve(7, 60);
    assert_eq!(
        effects,
        [offer(session, reservation(7))],
        "and is forgotten"
    );
    bench.refuses(session, reservation(7), RefusalReason::Memory);
    bench.step(Input::HungUp { to });
    assert_eq!(bench.stay(session, 10), []);
}

/// API-23
#[test]
fn a_renewal_answers_the_lease_the_node_gave() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserved(session, 7);
    let (to, effects) = bench.renew(reservation(7));
    assert_eq!(
        effects,
        [Effect::Renew {
            session,
            reservation: reservation(7),
            lease_secs: 90
        }]
    );
    bench.stay(session, 3);
    let effects = bench.lease_is(session, reservation(7), held(70));
    let Some(Answer::Renewed(grant)) = answer(&effects, to) else {
        panic!("no renewal: {effects:?}");
    };
    assert_eq!((grant.lease_secs, grant.node), (70, node(1)));
    assert_eq!(bench.stay(session, 69), []);
    assert_eq!(
        bench.stay(session, 1),
        [give_back(session, reservation(7))],
        "from the renewal on"
    );
}

#[test]
fn a_renewal_waits_10_s_for_the_node_and_its_late_answer_serves_no_other() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserved(session, 7);
    let (first, _) = bench.renew(reservation(7));
    assert_eq!(bench.stay(session, 9), []);
    let effects = bench.stay(session, 1);
    let late = answer(&effects, first).expect("an answer");
    assert_eq!(code(&late), (503, ErrorCode::Unavailable));
    let (second, _) = bench.renew(reservation(7));
    let effects = bench.lease_is(session, reservation(7), held(90));
    assert_eq!(answer(&effects, second), None, "the first one's");
    let effects = bench.lease_is(session, reservation(7), held(90));
    assert!(matches!(answer(&effects, second), Some(Answer::Renewed(_))));
}

/// API-23
#[test]
fn a_renewal_under_way_when_the_hubs_count_ends_is_waited_for() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserved(session, 7);
    bench.stay(session, 89);
    let (to, _) = bench.renew(reservation(7));
    assert_eq!(bench.stay(session, 5), []);
    let effects = bench.lease_is(session, reservation(7), held(90));
    assert!(matches!(answer(&effects, to), Some(Answer::Renewed(_))));
    bench.stay(session, 89);
    bench.renew(reservation(7));
    let effects = bench.stay(session, 11);
    assert!(
        effects.contains(&give_back(session, reservation(7))),
        "but not for ever"
    );
}

#[test]
fn a_renewal_nobody_waits_for_is_not_sent_again_on_the_next_session() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserved(session, 7);
    bench.renew(reservation(7));
    bench.stay(session, 10);
    bench.close(session);
    let session = bench.greet(1, 2);
    let named = vec![held_reservation(reservation(7), 80)];
    assert_eq!(bench.held(session, named, vec![]), []);
    let (to, _) = bench.renew(reservation(7));
    let effects = bench.lease_is(session, reservation(7), held(90));
    assert!(matches!(answer(&effects, to), Some(Answer::Renewed(_))));
}

/// API-24
#[test]
fn renewing_what_is_over_answers_reservation_gone() {
    let (mut bench, session) = Bench::with_node(9);
    for (n, why) in [(1, GoneWhy::Expired), (2, GoneWhy::Unknown)] {
        bench.reserved(session, n);
        let (waiting, _) = bench.renew(reservation(n));
        let effects = bench.lease_is(session, reservation(n), gone(why));
        let refused = answer(&effects, waiting).expect("an answer");
        assert_eq!(code(&refused), (410, ErrorCode::ReservationGone));
        let (to, effects) = bench.renew(reservation(n));
        let refused = answer(&effects, to).expect("an answer");
        assert_eq!(code(&refused), (410, ErrorCode::ReservationGone));
    }
    bench.reserved(session, 3);
    bench.ask(Request::Release {
        reservation: reservation(3),
    });
    let (to, effects) = bench.renew(reservation(3));
    let refused = answer(&effects, to).expect("an answer");
    assert_eq!(code(&refused), (410, ErrorCode::ReservationGone));
}

/// API-24, DISP-84
#[test]
fn a_reservation_of_a_node_out_of_touch_lasts_as_long_as_its_lease() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserved(session, 7);
    bench.close(session);
    let (to, effects) = bench.renew(reservation(7));
    assert_eq!(effects, [], "it may come back");
    let session = bench.connect_with(1, 2, vec![held_reservation(reservation(7), 44)]);
    let effects = bench.lease_is(session, reservation(7), held(90));
    assert!(matches!(answer(&effects, to), Some(Answer::Renewed(_))));
    bench.close(session);
    assert_eq!(bench.pass_secs(85), []);
    let (to, _) = bench.renew(reservation(7));
    let effects = bench.pass_secs(5);
    let refused = answer(&effects, to).expect("an answer");
    assert_eq!(code(&refused), (410, ErrorCode::ReservationGone));
}

/// DISP-84
#[test]
fn held_confirms_a_reservation_or_ends_it() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserved(session, 7);
    bench.reserved(session, 8);
    bench.close(session);
    bench.pass_secs(20);
    let session = bench.connect_with(1, 2, vec![held_reservation(reservation(7), 44)]);
    let ids: Vec<_> = bench
        .fleet
        .reservations()
        .map(|one| one.reservation)
        .collect();
    assert_eq!(ids, [reservation(7)]);
    assert_eq!(bench.stay(session, 43), []);
    assert_eq!(bench.stay(session, 1), [give_back(session, reservation(7))]);
}

/// API-25, API-49, API-64
#[test]
fn releasing_is_harmless_however_often() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserved(session, 7);
    let release = Request::Release {
        reservation: reservation(7),
    };
    let (to, effects) = bench.send(relay(1), release.clone());
    assert_eq!(answer(&effects, to), Some(Answer::Released));
    assert!(effects.contains(&give_back(session, reservation(7))));
    assert_eq!(bench.ask(release.clone()), Answer::Released);
    let unknown = Request::Release {
        reservation: reservation(99),
    };
    assert_eq!(bench.ask(unknown), Answer::Released);
    assert_eq!(
        bench.lease_is(session, reservation(7), gone(GoneWhy::Released)),
        []
    );
}

/// API-64, ERR-12
#[test]
fn anothers_live_reservation_is_not_found() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserved(session, 7);
    let release = Request::Release {
        reservation: reservation(7),
    };
    let refused = bench.ask_as(2, release);
    assert_eq!(code(&refused), (404, ErrorCode::NotFound));
    let renew = Request::Renew {
        reservation: reservation(7),
        request: vk_hub_proto::client::RenewRequest { lease_secs: 90 },
    };
    let refused = bench.ask_as(2, renew);
    assert_eq!(code(&refused), (404, ErrorCode::NotFound));
    assert_eq!(bench.fleet.reservations().count(), 1);
}

/// API-56
#[test]
fn a_lease_out_of_range_is_invalid() {
    let (mut bench, _) = Bench::with_node(2);
    for lease_secs in [0, 601] {
        let request = Request::Reserve {
            request: vk_hub_proto::client::ReservationRequest {
                request_id: request_id(1),
                placement: placement(),
                lease_secs,
                wait_secs: 0,
            },
            digest: digest(1),
            fresh: reservation(1),
        };
        let refused = bench.ask(request);
        assert_eq!(code(&refused), (400, ErrorCode::Invalid));
        let renew = Request::Renew {
            reservation: reservation(7),
            request: vk_hub_proto::client::RenewRequest { lease_secs },
        };
        let refused = bench.ask(renew);
        assert_eq!(code(&refused), (400, ErrorCode::Invalid));
    }
}

#[test]
fn an_offer_on_a_session_that_ends_goes_on_elsewhere() {
    let (mut bench, session) = Bench::with_node(2);
    bench.add_node(2);
    let other = bench.connect(2, 1);
    bench.reserve(7, 60);
    assert_eq!(bench.close(session), [offer(other, next(7, 1))]);
    let session = bench.greet(1, 2);
    let effects = bench.held(session, vec![held_reservation(reservation(7), 80)], vec![]);
    assert_eq!(effects, [give_back(session, reservation(7))]);
}

/// API-27
#[test]
fn a_reservation_a_job_starts_on_serves_nothing_else() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserved(session, 7);
    let effects = bench.submit(1, Some(reservation(7)));
    assert!(effects.contains(&start(session, 1, Some(reservation(7)))));
    let (to, effects) = bench.renew(reservation(7));
    let refused = answer(&effects, to).expect("an answer");
    assert_eq!(code(&refused), (410, ErrorCode::ReservationGone));
    let release = Request::Release {
        reservation: reservation(7),
    };
    let (to, effects) = bench.send(relay(1), release);
    assert_eq!(answer(&effects, to), Some(Answer::Released));
    assert_eq!(effects.len(), 1, "the node is told nothing");
    assert_eq!(bench.fleet.reservations().count(), 1);
    bench.job_is(session, 1, RunState::Accepted);
    assert_eq!(
        bench.lease_is(session, reservation(7), gone(GoneWhy::Started)),
        []
    );
    assert_eq!(bench.fleet.reservations().count(), 0);
}
