//! A store that fails.

use vk_hub_core::{Effect, FromNode, Input, Request};
use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::node_session::RefusedCode;
use vk_step::Core;

use crate::bench::{Bench, answer, code, heartbeat, job};

#[test]
fn a_core_whose_store_failed_promises_nothing_and_says_why() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    let (poll, _) = bench.watch(1, bench.view(1).revision, 60);
    let (reserve, _) = bench.reserve(7, 60);
    let why = "no space left on device".to_owned();
    let effects = bench.step(Input::StoreFailed { why: why.clone() });
    for to in [poll, reserve] {
        let refused = answer(&effects, to).expect("an answer");
        assert_eq!(code(&refused), (503, ErrorCode::Unavailable));
        assert!(format!("{refused:?}").contains(&why));
    }
    let told = |effect: &Effect| match effect {
        Effect::Close {
            session: of,
            code,
            reason,
        } => *of == session && *code == RefusedCode::Internal && reason.contains(&why),
        _ => false,
    };
    assert!(effects.iter().any(told), "{effects:?}");
    assert!(effects.contains(&Effect::Stopped { why: why.clone() }));
    assert_eq!(bench.fleet.stopped(), Some(why.as_str()));

    let before = bench.records.len();
    let refused = bench.ask(Request::Settle { job: job(1) });
    assert_eq!(code(&refused), (503, ErrorCode::Unavailable));
    let beat = FromNode::Heartbeat(Box::new(heartbeat(9)));
    assert_eq!(bench.from(session, beat), []);
    let (_, effects) = bench.open(1, 3);
    assert!(matches!(effects[..], [Effect::Close { .. }]));
    assert_eq!(bench.records.len(), before, "nothing is kept any more");
    assert_eq!(bench.fleet.next_deadline(), None);
}

#[test]
fn a_core_opened_anew_after_that_goes_on_from_what_is_durable() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    let durable = bench.records.clone();
    bench.cancel(1, vk_hub_proto::client::CancelMode::Immediate);
    bench.step(Input::StoreFailed {
        why: "disk full".to_owned(),
    });
    bench.restart_from(durable);
    assert_eq!(bench.view(1).cancel, None);
    let session = bench.greet(1, 2);
    let effects = bench.held(session, vec![], vec![crate::bench::held_job(1)]);
    assert_eq!(effects, [crate::bench::ack(session, 1, 0)]);
}
