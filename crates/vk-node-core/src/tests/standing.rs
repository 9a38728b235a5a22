//! The node's state and caps.

use vk_hub_proto::CommandId;
use vk_hub_proto::dispatch::{GoneWhy, LeaseState, NodeJobMessage, OfferReply};
use vk_hub_proto::node_session::{Acquisition, CommandOp, CommandOutcome, DesiredState, NodeState};

use super::*;
use crate::io::OperatorOp;

fn command(node: &mut Node, n: u8, op: CommandOp) -> (CommandOutcome, Vec<Effect>) {
    let effects = node.give(Input::Command {
        id: CommandId::from_bytes([n; 16]),
        op,
        expired: false,
    });
    let ack = effects.iter().find_map(|effect| match effect {
        Effect::SendAck { outcome, .. } => Some(outcome.clone()),
        _ => None,
    });
    (ack.unwrap(), effects)
}

fn desire(node: &mut Node, generation: u64, ceiling: Option<u32>, acquisition: Acquisition) {
    node.give(Input::Desired(DesiredState {
        generation,
        ceiling,
        acquisition,
    }));
}

fn offered(node: &mut Node, n: u8) -> Option<RefusalReason> {
    match node.offer(n, 512, 90) {
        OfferReply::Refused { reason, .. } => Some(reason),
        _ => None,
    }
}

fn started(node: &mut Node, n: u8, reservation: Option<u8>) -> Option<RefusalReason> {
    let effects = node.start(n, reservation, 512, 512);
    if spawns(&effects, n) {
        return None;
    }
    Some(refused(&effects, n))
}

/// DISP-31, DISP-39, DISP-83
#[test]
fn a_draining_node_lets_reservations_run_out_but_starts_on_them() {
    let mut node = Node::connected();
    node.offer(1, 512, 90);
    node.offer(2, 512, 90);
    node.wait(30);
    let (outcome, _) = command(&mut node, 1, CommandOp::Drain);
    assert_eq!(outcome, CommandOutcome::Done);
    assert_eq!(node.core.state(), NodeState::Draining);
    let left = OfferReply::Accepted { lease_secs: 60 };
    assert_eq!(node.offer(1, 512, 90), left);
    let effects = node.hub(HubJobMessage::Renew {
        reservation: res(2),
        lease_secs: 90,
    });
    let held = LeaseState::Held { remaining_secs: 60 };
    assert_eq!(
        sent(&effects),
        [NodeJobMessage::Lease {
            reservation: res(2),
            state: held
        }]
    );
    assert_eq!(offered(&mut node, 3), Some(RefusalReason::NotReady));
    assert_eq!(started(&mut node, 3, None), Some(RefusalReason::NotReady));
    assert_eq!(started(&mut node, 1, Some(1)), None);
    node.wait(60);
    assert_eq!(node.core.state(), NodeState::Draining);
    node.job(1, JobEvent::Alive { output_len: 0 });
    let effects = node.job(1, JobEvent::Result(done(0)));
    assert_eq!(node.core.state(), NodeState::Drained);
    let reports = |e: &Effect| matches!(e, Effect::SendReport { status, .. } if status.state == NodeState::Drained);
    assert!(effects.iter().any(reports), "{effects:?}");
    // The drain survives a restart.
    node.restart();
    assert_eq!(node.core.state(), NodeState::Drained);
}

/// DISP-31, DISP-40
#[test]
fn a_quarantine_gives_reservations_back_and_only_a_release_ends_it() {
    let mut node = Node::connected();
    node.offer(1, 512, 90);
    command(&mut node, 1, CommandOp::Drain);
    let (_, effects) = command(&mut node, 2, CommandOp::Quarantine);
    let gone = NodeJobMessage::Lease {
        reservation: res(1),
        state: LeaseState::Gone {
            why: GoneWhy::Released,
        },
    };
    assert_eq!(sent(&effects), [gone]);
    assert_eq!(node.core.admission().committed_mib, 0);
    assert_eq!(offered(&mut node, 2), Some(RefusalReason::NotReady));
    let (outcome, _) = command(&mut node, 3, CommandOp::Undrain);
    assert!(matches!(outcome, CommandOutcome::Refused { .. }));
    node.restart();
    node.connect();
    assert_eq!(node.core.state(), NodeState::Quarantined);
    command(&mut node, 4, CommandOp::Release);
    assert_eq!(node.core.state(), NodeState::Drained);
    command(&mut node, 5, CommandOp::Undrain);
    assert_eq!(offered(&mut node, 2), None);
}

/// DISP-31
#[test]
fn an_operators_drain_on_the_host_needs_no_session_and_is_kept() {
    let mut node = Node::connected();
    node.give(Input::SessionLost);
    let drain = CommandId::from_bytes([8; 16]);
    let undrain = CommandId::from_bytes([9; 16]);
    let effects = node.give(Input::Operator {
        id: drain,
        op: OperatorOp::Drain,
    });
    assert_eq!(effects, []);
    assert_eq!(node.core.outcome(drain), Some(&CommandOutcome::Done));
    node.restart();
    assert_eq!(node.core.state(), NodeState::Drained);
    node.connect();
    assert_eq!(offered(&mut node, 1), Some(RefusalReason::NotReady));
    let effects = node.give(Input::Operator {
        id: undrain,
        op: OperatorOp::Undrain,
    });
    let acks = |effect: &Effect| matches!(effect, Effect::SendAck { .. });
    assert!(!effects.iter().any(acks), "{effects:?}");
    assert_eq!(offered(&mut node, 1), None);
}

fn operator(node: &mut Node, n: u8, op: OperatorOp) -> CommandOutcome {
    let id = CommandId::from_bytes([n; 16]);
    node.give(Input::Operator { id, op });
    node.core.outcome(id).unwrap().clone()
}

/// DISP-31, DISP-83
#[test]
fn maintenance_begins_when_the_node_is_empty_and_ends_on_its_host_alone() {
    let mut node = Node::connected();
    node.offer(1, 512, 90);
    let done = CommandOutcome::Done;
    assert_eq!(operator(&mut node, 1, OperatorOp::Maintain), done);
    assert_eq!(node.core.state(), NodeState::Draining);
    assert_eq!(offered(&mut node, 2), Some(RefusalReason::NotReady));
    node.wait(90);
    assert_eq!(node.core.state(), NodeState::Maintenance);
    let reply = node.offer(2, 512, 90);
    let OfferReply::Refused { reason, message } = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(reason, RefusalReason::NotReady);
    assert_eq!(message.as_deref(), Some("the node is in maintenance"));
    // The host may be started anew meanwhile, and the hub's operators may not know.
    node.restart();
    node.connect();
    assert_eq!(node.core.state(), NodeState::Maintenance);
    let (refused, _) = command(&mut node, 2, CommandOp::Undrain);
    assert!(
        matches!(refused, CommandOutcome::Refused { reason } if reason.contains("vk node undrain"))
    );
    let (drained, _) = command(&mut node, 3, CommandOp::Drain);
    assert_eq!(drained, CommandOutcome::Done);
    assert_eq!(node.core.state(), NodeState::Maintenance);
    // A quarantine covers it, and leaves it as it was.
    command(&mut node, 4, CommandOp::Quarantine);
    assert_eq!(node.core.state(), NodeState::Quarantined);
    let refused = operator(&mut node, 5, OperatorOp::Undrain);
    assert!(matches!(refused, CommandOutcome::Refused { .. }));
    command(&mut node, 6, CommandOp::Release);
    assert_eq!(node.core.state(), NodeState::Maintenance);
    // A drain asks for less than what is.
    assert_eq!(operator(&mut node, 7, OperatorOp::Drain), done);
    assert_eq!(node.core.state(), NodeState::Maintenance);
    assert_eq!(operator(&mut node, 8, OperatorOp::Undrain), done);
    assert_eq!(offered(&mut node, 2), None);
}

/// DISP-31
#[test]
fn a_stop_of_acquisition_refuses_new_work() {
    let mut node = Node::connected();
    desire(&mut node, 1, None, Acquisition::Stop);
    assert_eq!(offered(&mut node, 1), Some(RefusalReason::NotReady));
    assert_eq!(started(&mut node, 1, None), Some(RefusalReason::NotReady));
    desire(&mut node, 2, None, Acquisition::Run);
    assert_eq!(offered(&mut node, 1), None);
}

#[test]
fn a_command_is_done_once_and_answered_as_often_as_it_comes() {
    let mut node = Node::connected();
    command(&mut node, 1, CommandOp::Drain);
    command(&mut node, 2, CommandOp::Undrain);
    node.restart();
    node.connect();
    let kept = node.kept.len();
    let (outcome, _) = command(&mut node, 1, CommandOp::Drain);
    assert_eq!(outcome, CommandOutcome::Done);
    assert_eq!(node.core.state(), NodeState::Ready);
    assert_eq!(node.kept.len(), kept);
    let effects = node.give(Input::Command {
        id: CommandId::from_bytes([3; 16]),
        op: CommandOp::Drain,
        expired: true,
    });
    let expired = |e: &Effect| matches!(e, Effect::SendAck { outcome, .. } if *outcome == CommandOutcome::Expired);
    assert!(effects.iter().any(expired));
    assert_eq!(node.core.state(), NodeState::Ready);
    let (outcome, _) = command(&mut node, 4, CommandOp::Other);
    assert!(matches!(outcome, CommandOutcome::Refused { .. }));
}

/// DISP-32, PLACE-11, PLACE-12
#[test]
fn the_ceiling_counts_reservations_and_unfinished_jobs() {
    let mut node = Node::connected();
    desire(&mut node, 1, Some(2), Acquisition::Run);
    assert_eq!(offered(&mut node, 1), None);
    node.run(2);
    assert_eq!(offered(&mut node, 3), Some(RefusalReason::Ceiling));
    assert_eq!(started(&mut node, 3, None), Some(RefusalReason::Ceiling));
    // Below a lowered ceiling a reservation that counts already is still started on.
    desire(&mut node, 2, Some(1), Acquisition::Run);
    assert_eq!(started(&mut node, 1, Some(1)), None);
    assert_eq!(offered(&mut node, 3), Some(RefusalReason::Ceiling));
    // Running jobs carry on, and a finished one counts no more.
    for n in [1, 2] {
        node.job(n, JobEvent::Alive { output_len: 0 });
        let effects = node.job(n, JobEvent::Result(done(0)));
        assert!(!effects.is_empty());
    }
    assert_eq!(offered(&mut node, 3), None);
}

/// DISP-32
#[test]
fn the_ceiling_as_last_applied_survives_a_restart() {
    let mut node = Node::connected();
    desire(&mut node, 1, Some(1), Acquisition::Run);
    node.restart();
    node.connect();
    assert_eq!(offered(&mut node, 1), None);
    assert_eq!(offered(&mut node, 2), Some(RefusalReason::Ceiling));
    // A generation is applied once.
    desire(&mut node, 1, Some(9), Acquisition::Run);
    assert_eq!(offered(&mut node, 2), Some(RefusalReason::Ceiling));
}

/// DISP-33, PLACE-11
#[test]
fn the_nodes_own_limit_counts_the_same() {
    let mut node = Node::with(Config {
        max_concurrency: Some(2),
        ..config()
    });
    node.connect();
    assert_eq!(offered(&mut node, 1), None);
    node.run(2);
    assert_eq!(offered(&mut node, 3), Some(RefusalReason::Concurrency));
    assert_eq!(
        started(&mut node, 3, None),
        Some(RefusalReason::Concurrency)
    );
    assert_eq!(started(&mut node, 1, Some(1)), None);
    desire(&mut node, 1, Some(2), Acquisition::Run);
    assert_eq!(offered(&mut node, 3), Some(RefusalReason::Ceiling));
}

/// PLACE-15, PLACE-16, PLACE-17
#[test]
fn an_own_gitlab_runner_leaves_only_reservations_already_held() {
    let mut node = Node::connected();
    node.offer(1, 512, 90);
    let found = "gitlab-runner.service runs the vk executor".to_owned();
    let effects = node.give(Input::OwnRunner(Some(found.clone())));
    let says = |e: &Effect| matches!(e, Effect::SendReport { status, .. } if status.own_runner.as_ref() == Some(&found));
    assert!(effects.iter().any(says));
    assert_eq!(offered(&mut node, 2), Some(RefusalReason::Runner));
    assert_eq!(started(&mut node, 2, None), Some(RefusalReason::Runner));
    assert_eq!(started(&mut node, 3, Some(9)), Some(RefusalReason::Runner));
    node.wait(60);
    let renewed = OfferReply::Accepted { lease_secs: 90 };
    assert_eq!(node.offer(1, 512, 90), renewed);
    assert_eq!(started(&mut node, 1, Some(1)), None);
    node.give(Input::OwnRunner(None));
    assert_eq!(offered(&mut node, 2), None);
}

#[test]
fn a_node_whose_journal_cannot_be_written_takes_nothing_new_and_says_why() {
    let mut node = Node::connected();
    node.run(1);
    node.restart();
    node.give(Input::StoreFailed {
        why: "no space left on /var/lib/vk".to_owned(),
    });
    node.job(1, JobEvent::Alive { output_len: 0 });
    let kept = node.kept.clone();
    let effects = node.connect();
    let why = "no space left on /var/lib/vk";
    let says = |e: &Effect| matches!(e, Effect::SendReport { status, .. } if status.store_failed.as_deref() == Some(why));
    assert!(effects.iter().any(says));
    assert_eq!(offered(&mut node, 2), Some(RefusalReason::NotReady));
    assert_eq!(started(&mut node, 2, None), Some(RefusalReason::NotReady));
    let (outcome, _) = command(&mut node, 1, CommandOp::Drain);
    assert!(matches!(outcome, CommandOutcome::Refused { reason } if reason.contains(why)));
    desire(&mut node, 7, Some(1), Acquisition::Run);
    // The running job is cancelled all the same, and its end waits.
    node.ack(1, 0);
    let effects = node.cancel(1, CancelMode::Graceful);
    let how = crate::Stop::Graceful;
    assert!(effects.contains(&Effect::Stop { job: id(1), how }));
    assert_eq!(node.job(1, JobEvent::Result(done(0))), []);
    assert_eq!(node.kept, kept);
    let effects = node.give(Input::StoreWorks);
    assert!(effects.contains(&Effect::DropSecrets { job: id(1) }));
    let [finished, NodeJobMessage::Result { .. }] = &sent(&effects)[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(finished, &state(1, RunState::Finished));
    assert!(matches!(
        &node.kept[kept.len()..],
        [Record::Cancelled { .. }, Record::Finished { .. }]
    ));
    assert_eq!(offered(&mut node, 2), None);
}
