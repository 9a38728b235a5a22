//! The order of candidates.

use proptest::prelude::*;
use vk_hub_core::{Effect, FromNode, SessionHandle};
use vk_hub_proto::dispatch::{RefusalReason, RunState};

use crate::bench::{Bench, heartbeat, inventory, refused, start};

fn load(bench: &mut Bench, session: SessionHandle, room: u64, load1_hundredths: u32) {
    let beat = vk_hub_proto::node_session::Heartbeat {
        load1_hundredths: Some(load1_hundredths),
        ..heartbeat(room)
    };
    bench.from(session, FromNode::Heartbeat(Box::new(beat)));
}

fn asked(effects: &[Effect]) -> Option<SessionHandle> {
    effects.iter().find_map(|effect| match effect {
        Effect::Offer { session, .. } | Effect::Start { session, .. } => Some(*session),
        _ => None,
    })
}

/// PLACE-21, PLACE-41
#[test]
fn with_equal_load_the_roomier_and_then_the_lower_id_goes_first() {
    let mut bench = Bench::new();
    let mut sessions = Vec::new();
    for n in [3, 1, 2] {
        bench.add_node(n);
        sessions.push(bench.connect(n, 2));
    }
    let (_, effects) = bench.reserve(1, 0);
    assert_eq!(asked(&effects), Some(sessions[1]), "the lowest ID");
    bench.refuses(
        sessions[1],
        crate::bench::reservation(1),
        RefusalReason::Disk,
    );
    bench.beat(sessions[2], 3);
    let (_, effects) = bench.reserve(2, 0);
    assert_eq!(asked(&effects), Some(sessions[2]), "the roomiest");
}

/// PLACE-22, PLACE-23, PLACE-24
#[test]
fn placed_work_against_room_weighs() {
    let (mut bench, first) = Bench::with_node(9);
    bench.add_node(2);
    let second = bench.connect(2, 4);
    for session in [first, second] {
        bench.from(session, FromNode::Inventory(Box::new(inventory(100, &[]))));
    }
    assert_eq!(asked(&bench.submit(1, None)), Some(first));
    assert_eq!(asked(&bench.submit(2, None)), Some(second), "1/9 against 0");
    assert_eq!(
        asked(&bench.submit(3, None)),
        Some(first),
        "1/9 against 1/4"
    );
    assert_eq!(
        asked(&bench.submit(4, None)),
        Some(first),
        "2/9 against 1/4"
    );
    let (_, effects) = bench.reserve(5, 0);
    assert_eq!(
        asked(&effects),
        Some(second),
        "3/9 against 1/4: the same order"
    );
}

/// PLACE-25
#[test]
fn cpus_of_placed_work_weigh() {
    let (mut bench, first) = Bench::with_node(100);
    bench.add_node(2);
    let second = bench.connect(2, 100);
    bench.from(first, FromNode::Inventory(Box::new(inventory(8, &[]))));
    bench.from(second, FromNode::Inventory(Box::new(inventory(2, &[]))));
    let order: Vec<_> = (1..6)
        .map(|n| asked(&bench.submit(n, None)).unwrap())
        .collect();
    assert_eq!(order, [first, second, first, first, first]);
}

/// PLACE-26, PLACE-28
#[test]
fn a_host_busy_with_other_work_comes_last() {
    let (mut bench, first) = Bench::with_node(50);
    bench.add_node(2);
    let second = bench.connect(2, 10);
    load(&mut bench, first, 50, 300);
    let order: Vec<_> = (1..5)
        .map(|n| asked(&bench.submit(n, None)).unwrap())
        .collect();
    assert_eq!(order, [second, second, second, first], "3 of 4 CPUs busy");
}

/// PLACE-27
#[test]
fn work_spreads_instead_of_stacking_on_the_roomiest() {
    let mut bench = Bench::new();
    for (n, room) in [(1, 40), (2, 30), (3, 30)] {
        bench.add_node(n);
        let session = bench.connect(n, room);
        bench.from(session, FromNode::Inventory(Box::new(inventory(64, &[]))));
    }
    for n in 1..31 {
        bench.submit(n, None);
    }
    let placed: Vec<_> = bench.fleet.nodes().map(|node| node.placed).collect();
    assert_eq!(placed, [12, 9, 9]);
}

/// PLACE-45
#[test]
fn a_start_on_a_held_reservation_goes_out_at_the_cap_and_to_a_node_that_takes_no_other_work() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserved(session, 7);
    bench.operate(vk_hub_core::OperatorRequest::SetCeiling {
        node: crate::bench::node(1),
        ceiling: Some(1),
    });
    let drained = vk_hub_proto::node_session::Report {
        state: Some(vk_hub_proto::node_session::NodeState::Draining),
        ..crate::bench::ready()
    };
    bench.from(session, FromNode::Report(Box::new(drained)));
    let on = Some(crate::bench::reservation(7));
    assert!(bench.submit(1, on).contains(&start(session, 1, on)));
    let status = bench.fleet.nodes().next().unwrap();
    assert_eq!((status.placed, status.cap), (1, Some(1)));
}

/// PLACE-39
#[test]
fn a_job_starts_on_its_reservation_whatever_the_load() {
    let (mut bench, first) = Bench::with_node(2);
    bench.reserved(first, 7);
    bench.add_node(2);
    bench.connect(2, 50);
    load(&mut bench, first, 2, 4_000);
    let on = Some(crate::bench::reservation(7));
    assert!(bench.submit(1, on).contains(&start(first, 1, on)));
}

/// FLOW-15
#[test]
fn jobs_wait_in_the_order_they_came_and_before_reservations() {
    let (mut bench, session) = Bench::with_node(1);
    bench.submit(1, None);
    bench.reserve(7, 60);
    bench.submit(2, None);
    bench.submit(3, None);
    bench.job_is(session, 1, RunState::Accepted);
    bench.pass_secs(6);
    let effects = bench.beat(session, 1);
    assert!(effects.contains(&start(session, 2, None)), "{effects:?}");
    bench.job_is(session, 2, RunState::Accepted);
    bench.pass_secs(6);
    let effects = bench.beat(session, 2);
    assert!(effects.contains(&start(session, 3, None)), "{effects:?}");
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Offer { .. }))
    );
}

#[test]
fn a_job_behind_one_nobody_wants_is_started_at_once() {
    let (mut bench, session) = Bench::with_node(1);
    bench.submit(1, None);
    bench.job_is(session, 1, refused(RefusalReason::Policy));
    assert!(bench.submit(2, None).contains(&start(session, 2, None)));
}

#[test]
fn jobs_nobody_wants_do_not_stand_in_the_way_of_others() {
    let (mut bench, session) = Bench::with_node(1);
    let wanted = 100;
    let mut effects = bench.submit(0, None);
    for n in 1..=wanted {
        bench.submit(n, None);
    }
    for _ in 0..300 {
        let started = effects.iter().find_map(|effect| match effect {
            Effect::Start { job, .. } => Some(job.as_bytes()[0]),
            _ => None,
        });
        match started {
            Some(n) if n == wanted => return,
            Some(n) => effects = bench.job_is(session, n, refused(RefusalReason::Policy)),
            None => effects = bench.stay(session, 1),
        }
    }
    panic!("the job that a node would take was never started");
}

proptest! {
    /// PLACE-10
    #[test]
    fn no_node_is_given_more_than_its_cap(
        caps in prop::collection::vec((1_u32..4, 1_u64..6), 1..5),
        jobs in 1_u8..20,
    ) {
        let mut bench = Bench::new();
        for (n, (ceiling, room)) in caps.iter().enumerate() {
            let n = u8::try_from(n).unwrap() + 1;
            bench.add_node(n);
            bench.operate(vk_hub_core::OperatorRequest::SetCeiling {
                node: crate::bench::node(n),
                ceiling: Some(*ceiling),
            });
            bench.connect(n, *room);
        }
        for n in 0..jobs {
            if n % 3 == 0 {
                bench.reserve(n, 60);
            } else {
                bench.submit(n, None);
            }
        }
        let total: u64 = bench.fleet.nodes().map(|node| node.placed).sum();
        let most: u64 = caps.iter().map(|(cap, room)| u64::from(*cap).min(*room)).sum();
        prop_assert_eq!(total, most.min(u64::from(jobs)));
        for node in bench.fleet.nodes() {
            prop_assert!(node.placed <= u64::from(node.cap.unwrap()));
        }
    }
}
