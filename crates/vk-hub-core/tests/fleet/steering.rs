//! Sessions and steering: versions, desired state, protocol errors.

use vk_hub_core::{Answer, Effect, FromNode, OperatorRequest, Record, VERSIONS};
use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::dispatch::RunState;
use vk_hub_proto::node_session::{Acquisition, DesiredState, RefusedCode, VersionRange};

use crate::bench::{Bench, code, job, node};

fn desired(effects: &[Effect]) -> Option<DesiredState> {
    effects.iter().find_map(|effect| match effect {
        Effect::Desired { desired, .. } => Some(*desired),
        _ => None,
    })
}

fn closed(effects: &[Effect]) -> Option<RefusedCode> {
    effects.iter().find_map(|effect| match effect {
        Effect::Close { code, .. } => Some(*code),
        _ => None,
    })
}

/// DISP-05
#[test]
fn a_node_that_offers_version_3_gets_it() {
    let node = VersionRange { min: 1, max: 3 };
    assert_eq!(VERSIONS.highest_common(node), Some(3));
    let older = VersionRange { min: 1, max: 2 };
    assert_eq!(VERSIONS.highest_common(older), Some(2));
}

/// DISP-02, DISP-06
#[test]
fn a_job_message_in_a_session_below_version_3_ends_it() {
    let mut bench = Bench::new();
    bench.add_node(1);
    let (session, _) = bench.open(1, 2);
    let effects = bench.from(
        session,
        FromNode::Job {
            job: job(1),
            state: RunState::Accepted,
        },
    );
    assert_eq!(closed(&effects), Some(RefusedCode::Protocol));
    assert_eq!(bench.fleet.nodes().next().unwrap().session, None);
}

/// PLACE-08
#[test]
fn the_desired_state_is_sent_at_once_and_with_each_session_and_outlives_the_hub() {
    let mut bench = Bench::new();
    bench.add_node(1);
    let (_, effects) = bench.open(1, 3);
    let first = desired(&effects).expect("a desired state");
    assert_eq!((first.ceiling, first.acquisition), (None, Acquisition::Run));
    let (done, effects) = bench.operate(OperatorRequest::SetCeiling {
        node: node(1),
        ceiling: Some(4),
    });
    assert_eq!(done, Answer::Done);
    let second = desired(&effects).expect("a desired state");
    assert_eq!(second.ceiling, Some(4));
    assert!(second.generation > first.generation);
    let (_, effects) = bench.operate(OperatorRequest::SetCeiling {
        node: node(1),
        ceiling: Some(4),
    });
    assert_eq!(desired(&effects), None, "nothing changed");
    bench.operate(OperatorRequest::SetAcquisition {
        node: node(1),
        acquisition: Acquisition::Stop,
    });
    bench.restart();
    let (_, effects) = bench.open(1, 3);
    let third = desired(&effects).expect("a desired state");
    assert_eq!(
        (third.ceiling, third.acquisition),
        (Some(4), Acquisition::Stop)
    );
}

#[test]
fn a_ceiling_of_0_is_refused() {
    let (mut bench, _) = Bench::with_node(2);
    let (refused, _) = bench.operate(OperatorRequest::SetCeiling {
        node: node(1),
        ceiling: Some(0),
    });
    assert_eq!(code(&refused), (400, ErrorCode::Invalid));
    let (refused, _) = bench.operate(OperatorRequest::SetPools {
        node: node(9),
        pools: vec![],
    });
    assert_eq!(code(&refused), (404, ErrorCode::NotFound));
}

#[test]
fn a_newer_session_replaces_the_older() {
    let (mut bench, older) = Bench::with_node(2);
    bench.running(older, 1);
    let (newer, effects) = bench.open(1, 3);
    assert_eq!(closed(&effects), Some(RefusedCode::Superseded));
    assert_eq!(bench.beat(older, 5), []);
    bench.close(older);
    let status = bench.fleet.nodes().next().unwrap();
    assert_eq!(status.session, Some((newer, 3)));
}

/// PLACE-02
#[test]
fn enrolling_a_node_again_keeps_its_pools() {
    let mut bench = Bench::new();
    bench.add_node(1);
    bench.operate(OperatorRequest::SetPools {
        node: node(1),
        pools: vec!["b".parse().unwrap(), "a".parse().unwrap()],
    });
    bench.add_node(1);
    bench.restart();
    let pools = bench.fleet.nodes().next().unwrap().pools.clone();
    let pools: Vec<_> = pools.iter().map(|pool| pool.as_str().to_owned()).collect();
    assert_eq!(pools, ["a", "b"]);
    let kept = |record: &&Record| matches!(record, Record::NodePools { .. });
    assert_eq!(bench.records.iter().filter(kept).count(), 2);
}
