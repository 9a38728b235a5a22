//! Room: counted, announced, waited for.

use vk_hub_core::{Answer, FromNode, Input, OperatorRequest, Request};
use vk_hub_proto::client::{CapacityRequest, ErrorCode};
use vk_hub_proto::dispatch::RunState;
use vk_hub_proto::node_session::{Acquisition, NodeState, Placed, Report};

use crate::bench::{
    Bench, answer, code, heartbeat, inventory, node, placement, ready, relay, reservation, result,
    start,
};

fn report(state: NodeState, limit: Option<u32>, runner: Option<&str>) -> FromNode {
    FromNode::Report(Box::new(Report {
        state: Some(state),
        placed: Some(Placed {
            runner: runner.map(str::to_owned),
            limit,
            image_cache_idle_secs: None,
        }),
        ..ready()
    }))
}

/// API-18, PLACE-29
#[test]
fn room_is_counted_in_envelopes_and_summed_over_nodes() {
    let (mut bench, _) = Bench::with_node(2);
    bench.add_node(2);
    bench.connect(2, 3);
    assert_eq!(bench.capacity_now().fits, 5);
}

/// PLACE-03
#[test]
fn a_pool_without_nodes_is_told_from_a_full_one() {
    let (mut bench, session) = Bench::with_node(0);
    assert!(!bench.capacity_now().no_nodes, "full");
    bench.close(session);
    assert!(!bench.capacity_now().no_nodes, "away, and it may come back");
    let mut elsewhere = placement();
    elsewhere.pool = "elsewhere".parse().unwrap();
    let request = CapacityRequest {
        placement: elsewhere,
        after: None,
        wait_secs: 0,
    };
    let (to, effects) = bench.send(relay(1), Request::Capacity(request));
    let answered = answer(&effects, to);
    let no_nodes = matches!(answered, Some(Answer::Capacity(found)) if found.no_nodes);
    assert!(no_nodes, "{answered:?}");
}

/// PLACE-29
#[test]
fn each_node_is_bounded_by_memory_disk_and_cap() {
    let (mut bench, session) = Bench::with_node(9);
    let mut beat = heartbeat(9);
    beat.storage[0].free_bytes = 4_999;
    bench.from(session, FromNode::Heartbeat(Box::new(beat)));
    assert_eq!(bench.capacity_now().fits, 4, "disk");
    bench.from(session, report(NodeState::Ready, Some(3), None));
    assert_eq!(bench.capacity_now().fits, 3, "cap");
    bench.beat(session, 2);
    assert_eq!(bench.capacity_now().fits, 2, "memory");
}

/// PLACE-29
#[test]
fn without_a_budget_available_memory_counts() {
    let (mut bench, session) = Bench::with_node(9);
    let mut beat = heartbeat(9);
    beat.admission.as_mut().unwrap().budget_mib = None;
    beat.mem_available_mib = Some(2_999);
    bench.from(session, FromNode::Heartbeat(Box::new(beat.clone())));
    assert_eq!(bench.capacity_now().fits, 2);
    beat.admission = None;
    beat.mem_available_mib = None;
    bench.from(session, FromNode::Heartbeat(Box::new(beat)));
    assert_eq!(bench.capacity_now().fits, 0, "unknown room is none");
}

/// ADM-03, PLACE-18, PLACE-43
#[test]
fn only_nodes_that_may_take_work_count() {
    let (mut bench, session) = Bench::with_node(2);
    for state in [
        NodeState::Draining,
        NodeState::Drained,
        NodeState::Maintenance,
        NodeState::Validating,
        NodeState::Quarantined,
        NodeState::Other,
    ] {
        bench.from(session, report(state, None, None));
        assert_eq!(bench.capacity_now().fits, 0, "{state:?}");
    }
    bench.from(session, report(NodeState::Ready, None, Some("a runner")));
    assert_eq!(bench.capacity_now().fits, 0, "own runner");
    let stopped = Report {
        acquisition: Some(Acquisition::Stop),
        ..ready()
    };
    bench.from(session, FromNode::Report(Box::new(stopped)));
    assert_eq!(bench.capacity_now().fits, 0, "stopped by itself");
    bench.from(session, report(NodeState::Ready, None, None));
    assert_eq!(bench.capacity_now().fits, 2);
    let stop = OperatorRequest::SetAcquisition {
        node: node(1),
        acquisition: Acquisition::Stop,
    };
    bench.operate(stop);
    assert_eq!(bench.capacity_now().fits, 0, "stopped by the operator");
}

/// PLACE-43, DISP-72
#[test]
fn a_node_counts_from_its_held_to_the_end_of_its_session() {
    let mut bench = Bench::new();
    bench.add_node(1);
    let session = bench.greet(1, 2);
    assert_eq!(bench.capacity_now().fits, 0);
    bench.held(session, Vec::new(), Vec::new());
    assert_eq!(bench.capacity_now().fits, 2);
    bench.close(session);
    assert_eq!(bench.capacity_now().fits, 0);
}

/// ADM-02
#[test]
fn the_last_sessions_heartbeat_does_not_count() {
    let (mut bench, session) = Bench::with_node(2);
    bench.close(session);
    let (session, _) = bench.open(1, 3);
    bench.from(session, FromNode::Report(Box::new(ready())));
    bench.held(session, Vec::new(), Vec::new());
    assert_eq!(bench.capacity_now().fits, 0);
    bench.beat(session, 1);
    assert_eq!(bench.capacity_now().fits, 1);
}

/// DISP-06
#[test]
fn a_session_below_version_3_takes_no_job() {
    let mut bench = Bench::new();
    bench.add_node(1);
    let (session, effects) = bench.open(1, 2);
    assert!(
        matches!(effects[..], [vk_hub_core::Effect::Desired { .. }]),
        "it is steered"
    );
    bench.from(session, FromNode::Inventory(Box::new(inventory(4, &[]))));
    bench.from(session, FromNode::Report(Box::new(ready())));
    bench.beat(session, 2);
    assert_eq!(bench.capacity_now().fits, 0);
    assert_eq!(bench.reserve(1, 0).1, []);
    let (_, effects) = bench.open(1, 1);
    assert!(
        !effects
            .iter()
            .any(|effect| matches!(effect, vk_hub_core::Effect::Desired { .. })),
        "below version 2 nothing steers"
    );
}

/// PLACE-03, PLACE-05, PLACE-06
#[test]
fn pool_and_every_label_must_match() {
    let (mut bench, session) = Bench::with_node(2);
    let mut wanted = placement();
    wanted.labels = vec!["fast".parse().unwrap(), "large".parse().unwrap()];
    let ask = |bench: &mut Bench, placement| {
        let request = CapacityRequest {
            placement,
            after: None,
            wait_secs: 0,
        };
        match bench.ask(Request::Capacity(request)) {
            Answer::Capacity(capacity) => capacity.fits,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(&mut bench, wanted.clone()), 0);
    let one = inventory(4, &["large"]);
    bench.from(session, FromNode::Inventory(Box::new(one)));
    assert_eq!(ask(&mut bench, wanted.clone()), 0);
    let both = inventory(4, &["large", "fast", "other"]);
    bench.from(session, FromNode::Inventory(Box::new(both)));
    assert_eq!(ask(&mut bench, wanted.clone()), 2);
    wanted.labels.reverse();
    assert_eq!(ask(&mut bench, wanted.clone()), 2, "order means nothing");
    wanted.pool = "other".parse().unwrap();
    assert_eq!(ask(&mut bench, wanted), 0);
}

/// PLACE-40, PLACE-41
#[test]
fn an_envelope_with_more_cpus_than_the_node_has_does_not_fit() {
    let (mut bench, session) = Bench::with_node(2);
    let mut wide = placement();
    wide.envelope.cpus = 4;
    let fits = |bench: &mut Bench, placement| {
        let request = CapacityRequest {
            placement,
            after: None,
            wait_secs: 0,
        };
        match bench.ask(Request::Capacity(request)) {
            Answer::Capacity(capacity) => capacity.fits,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fits(&mut bench, wide.clone()), 2, "CPUs are no room");
    wide.envelope.cpus = 5;
    assert_eq!(fits(&mut bench, wide), 0);
    bench.from(session, FromNode::Inventory(Box::new(inventory(0, &[]))));
    assert_eq!(bench.capacity_now().fits, 2, "0 CPUs count as 1");
}

/// ADM-01, ADM-02
#[test]
fn offers_reservations_and_starts_count_until_a_heartbeat_shows_them() {
    let (mut bench, session) = Bench::with_node(4);
    bench.reserve(1, 0);
    assert_eq!(bench.capacity_now().fits, 3, "offered");
    bench.accepts(session, reservation(1));
    bench.submit(2, None);
    assert_eq!(bench.capacity_now().fits, 2, "started");
    bench.beat(session, 3);
    assert_eq!(bench.capacity_now().fits, 1, "too fresh to be in it");
    bench.pass_secs(5);
    bench.beat(session, 3);
    assert_eq!(bench.capacity_now().fits, 2, "the start is not answered");
    bench.job_is(session, 2, RunState::Accepted);
    bench.pass_secs(5);
    bench.beat(session, 2);
    assert_eq!(bench.capacity_now().fits, 2);
    bench.submit(3, Some(reservation(1)));
    assert_eq!(
        bench.capacity_now().fits,
        2,
        "its reservation counts already"
    );
}

/// ADM-04, ADM-05, PLACE-08, PLACE-10
#[test]
fn the_cap_is_the_smaller_limit_and_counts_what_the_node_holds() {
    let (mut bench, session) = Bench::with_node(9);
    bench.from(session, report(NodeState::Ready, Some(4), None));
    let ceiling = |ceiling| OperatorRequest::SetCeiling {
        node: node(1),
        ceiling,
    };
    bench.operate(ceiling(Some(3)));
    assert_eq!(bench.capacity_now().fits, 3);
    bench.operate(ceiling(Some(7)));
    assert_eq!(bench.capacity_now().fits, 4);
    bench.running(session, 1);
    bench.reserved(session, 2);
    assert_eq!(bench.capacity_now().fits, 2);
    bench.ends(session, 1, result());
    assert_eq!(bench.capacity_now().fits, 3);
    bench.operate(ceiling(Some(1)));
    assert_eq!(bench.capacity_now().fits, 0);
    assert_eq!(bench.reserve(3, 0).1, [], "at the cap nothing is offered");
    let effects = bench.submit(4, None);
    assert!(!effects.contains(&start(session, 4, None)), "nor started");
}

/// API-13, API-69
#[test]
fn a_capacity_poll_wakes_when_its_placement_changes_and_for_no_other() {
    let (mut bench, session) = Bench::with_node(2);
    let now = bench.capacity_now();
    let mut other = placement();
    other.envelope.mem_mib = 50_000;
    let request = CapacityRequest {
        placement: other.clone(),
        after: None,
        wait_secs: 0,
    };
    let Answer::Capacity(of_other) = bench.ask(Request::Capacity(request.clone())) else {
        panic!("no capacity");
    };
    let (poll, effects) = bench.capacity(Some(now.revision), 60);
    assert_eq!(effects, []);
    let (sleeper, _) = bench.send(
        relay(1),
        Request::Capacity(CapacityRequest {
            after: Some(of_other.revision),
            wait_secs: 60,
            ..request
        }),
    );
    assert_eq!(bench.beat(session, 2), [], "the same room again");
    let effects = bench.beat(session, 3);
    let Some(Answer::Capacity(changed)) = answer(&effects, poll) else {
        panic!("not woken: {effects:?}");
    };
    assert_eq!(changed.fits, 3);
    assert!(changed.revision > now.revision);
    assert_eq!(answer(&effects, sleeper), None);
}

/// API-13, API-54
#[test]
fn a_capacity_request_whose_revision_has_passed_is_answered_at_once() {
    let (mut bench, session) = Bench::with_node(2);
    let before = bench.capacity_now();
    bench.beat(session, 1);
    let (to, effects) = bench.capacity(Some(before.revision), 60);
    assert!(answer(&effects, to).is_some());
    let (to, effects) = bench.capacity(None, 60);
    assert!(answer(&effects, to).is_some(), "without `after`");
}

/// API-12, API-16
#[test]
fn a_poll_is_held_for_a_minute_at_most_and_then_answers_as_without_waiting() {
    let mut bench = Bench::new();
    let now = bench.capacity_now();
    let (poll, _) = bench.capacity(Some(now.revision), 4_000);
    let almost = std::time::Duration::from_millis(59_999);
    assert_eq!(answer(&bench.pass(almost), poll), None);
    let effects = bench.pass_secs(1);
    assert_eq!(answer(&effects, poll), Some(Answer::Capacity(now)));
    assert_eq!(bench.fleet.waiting(), 0);
}

/// API-69
#[test]
fn who_hung_up_is_not_answered() {
    let (mut bench, session) = Bench::with_node(2);
    let now = bench.capacity_now();
    let (to, _) = bench.capacity(Some(now.revision), 60);
    bench.step(Input::HungUp { to });
    assert_eq!(bench.fleet.waiting(), 0);
    assert_eq!(bench.beat(session, 5), []);
}

/// API-65
#[test]
fn an_old_after_never_hangs_a_client_even_when_the_placement_was_forgotten() {
    let mut bench = Bench::with(|settings| settings.placements = 2);
    bench.add_node(1);
    bench.connect(1, 2);
    let known = bench.capacity_now();
    for mem_mib in 1..9 {
        let mut other = placement();
        other.envelope.mem_mib = mem_mib;
        let request = CapacityRequest {
            placement: other,
            after: None,
            wait_secs: 0,
        };
        bench.ask(Request::Capacity(request));
    }
    let (to, effects) = bench.capacity(Some(known.revision), 60);
    assert!(answer(&effects, to).is_some());
}

/// PLACE-42, ERR-03
#[test]
fn an_envelope_of_nothing_is_invalid() {
    let mut bench = Bench::new();
    let mut nothing = placement();
    nothing.envelope.mem_mib = 0;
    let request = CapacityRequest {
        placement: nothing,
        after: None,
        wait_secs: 0,
    };
    let refused = bench.ask(Request::Capacity(request));
    assert_eq!(code(&refused), (400, ErrorCode::Invalid));
}

/// PLACE-02
#[test]
fn pools_are_the_operators_and_take_effect_at_once() {
    let (mut bench, _) = Bench::with_node(2);
    let now = bench.capacity_now();
    let (poll, _) = bench.capacity(Some(now.revision), 60);
    let pools = |pools: &[&str]| OperatorRequest::SetPools {
        node: node(1),
        pools: pools.iter().map(|pool| pool.parse().unwrap()).collect(),
    };
    let (_, effects) = bench.operate(pools(&["other", "third"]));
    assert!(answer(&effects, poll).is_some());
    assert_eq!(bench.capacity_now().fits, 0);
    bench.operate(pools(&["third", "ci"]));
    assert_eq!(bench.capacity_now().fits, 2);
}
