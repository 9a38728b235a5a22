//! Offers, leases and what a start has of the ledger.

use vk_hub_proto::dispatch::{
    GoneWhy, HubJobMessage, LeaseState, NodeJobMessage, OfferReply, RefusalReason, RunState,
};

use super::*;

const ACCEPTED_90: OfferReply = OfferReply::Accepted { lease_secs: 90 };

fn renew(node: &mut Node, n: u8, lease_secs: u32) -> LeaseState {
    let effects = node.hub(HubJobMessage::Renew {
        reservation: res(n),
        lease_secs,
    });
    match sent(&effects).as_slice() {
        [NodeJobMessage::Lease { state, .. }] => state.clone(),
        other => panic!("{other:?}"),
    }
}

fn gone(n: u8, why: GoneWhy) -> NodeJobMessage {
    NodeJobMessage::Lease {
        reservation: res(n),
        state: LeaseState::Gone { why },
    }
}

/// ADM-08, ADM-09, DISP-35, DISP-36
#[test]
fn an_offer_is_answered_at_once_and_counts_while_it_lasts() {
    let mut node = Node::connected();
    assert_eq!(node.offer(1, 10000, 90), ACCEPTED_90);
    assert_eq!(node.core.admission().committed_mib, 10000);
    assert_eq!(node.core.admission().running, 1);
    // Nothing is kept and nothing is started for it.
    assert_eq!(node.kept, []);
    let short = node.offer(2, 10000, 90);
    assert_eq!(refusal(&short), RefusalReason::Memory);
    let mut large = envelope(1);
    large.disk_bytes = 2048 * MIB;
    let effects = node.hub(HubJobMessage::Offer {
        reservation: res(3),
        envelope: large,
        lease_secs: 90,
    });
    let [NodeJobMessage::OfferReply { reply, .. }] = &sent(&effects)[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(refusal(reply), RefusalReason::Disk);
    assert_eq!(node.core.admission().waiting, 0);
}

/// ADM-25, DISP-37
#[test]
fn a_lease_runs_out_on_the_nodes_own_clock() {
    let mut node = Node::connected();
    // A lease begins when the node takes it, not when its clock did.
    node.wait(1000);
    node.offer(1, 10000, 90);
    assert_eq!(node.wait(50), []);
    let held = |remaining_secs| LeaseState::Held { remaining_secs };
    assert_eq!(renew(&mut node, 1, 90), held(90));
    assert_eq!(node.wait(89), []);
    assert_eq!(sent(&node.wait(1)), [gone(1, GoneWhy::Expired)]);
    assert_eq!(node.core.admission().committed_mib, 0);
    let unknown = LeaseState::Gone {
        why: GoneWhy::Unknown,
    };
    assert_eq!(renew(&mut node, 1, 90), unknown);
}

/// DISP-37
#[test]
fn a_renewal_that_comes_with_the_end_comes_too_late() {
    let mut node = Node::connected();
    node.offer(1, 10000, 90);
    // The deadline has passed, but nobody gave the timeout yet.
    node.now = node.now.after(Duration::from_secs(90));
    let effects = node.hub(HubJobMessage::Renew {
        reservation: res(1),
        lease_secs: 90,
    });
    let late = [gone(1, GoneWhy::Expired), gone(1, GoneWhy::Unknown)];
    assert_eq!(sent(&effects), late);
}

/// DISP-38, DISP-74
#[test]
fn a_lease_is_at_most_600_seconds_and_never_none() {
    let mut node = Node::connected();
    let longest = OfferReply::Accepted { lease_secs: 600 };
    assert_eq!(node.offer(1, 1024, 5000), longest);
    assert_eq!(
        renew(&mut node, 1, 4000),
        LeaseState::Held {
            remaining_secs: 600
        }
    );
    let none = node.offer(2, 1024, 0);
    assert_eq!(refusal(&none), RefusalReason::Invalid);
    assert_eq!(sent(&node.wait(600)), [gone(1, GoneWhy::Expired)]);
}

/// DISP-74
#[test]
fn a_repeated_offer_renews_and_keeps_its_envelope() {
    let mut node = Node::connected();
    node.offer(1, 10000, 90);
    node.wait(60);
    assert_eq!(node.offer(1, 16000, 90), ACCEPTED_90);
    assert_eq!(node.core.admission().committed_mib, 10000);
    assert_eq!(node.wait(89), []);
    assert_eq!(node.wait(1).len(), 1);
}

#[test]
fn a_release_is_answered_also_for_one_that_is_not_held() {
    let mut node = Node::connected();
    node.offer(1, 10000, 90);
    for reservation in [1, 1, 9] {
        let effects = node.hub(HubJobMessage::Release {
            reservation: res(reservation),
        });
        let released = [gone(reservation, GoneWhy::Released)];
        assert_eq!(sent(&effects), released);
    }
    assert_eq!(node.core.admission().committed_mib, 0);
    assert_eq!(node.wait(200), []);
}

/// DISP-73, FLOW-16
#[test]
fn a_start_takes_its_reservation_over_and_says_accepted_first() {
    let mut node = Node::connected();
    node.offer(1, 4096, 90);
    let effects = node.start(1, Some(1), 4096, 4096);
    let started = [state(1, RunState::Accepted), gone(1, GoneWhy::Started)];
    assert_eq!(sent(&effects), started);
    assert!(spawns(&effects, 1));
    assert!(matches!(&node.kept[..], [Record::Started(started)] if started.job == id(1)));
    let admission = node.core.admission();
    assert_eq!((admission.committed_mib, admission.running), (4096, 1));
    // The lease has no end any more.
    assert_eq!(node.wait(700), []);
}

/// ADM-15, ADM-16
#[test]
fn what_a_job_does_not_need_goes_back() {
    let mut node = Node::connected();
    node.offer(1, 16384, 90);
    let effects = node.start(1, Some(1), 16384, 2048);
    let Some(Effect::Spawn { plan, .. }) = effects.last() else {
        panic!("{effects:?}");
    };
    assert_eq!((plan.mem_mib, plan.disk_bytes), (2048, MIB));
    assert_eq!(node.core.admission().committed_mib, 2048);
    let alive = node.job(1, JobEvent::Alive { output_len: 0 });
    assert_eq!(alive, [Effect::Grant { job: id(1) }]);
}

/// ADM-15
#[test]
fn past_runs_set_less_aside_than_the_vm_may_use() {
    let mut node = Node::connected();
    let effects = node.give(Input::Hub {
        message: Box::new(HubJobMessage::Start {
            job: id(1),
            reservation: None,
            envelope: envelope(4096),
            spec: JobSpec::GitlabCi(Box::new(spec(1, 4096))),
            registry: None,
        }),
        start: StartFacts {
            spec_bytes: 100,
            history_mib: Some(512),
        },
    });
    let Some(Effect::Spawn { plan, .. }) = effects.last() else {
        panic!("{effects:?}");
    };
    assert_eq!(plan.mem_mib, 4096);
    assert_eq!(node.core.admission().committed_mib, 512);
}

/// ADM-17, ADM-35
#[test]
fn a_job_that_needs_more_waits_in_line_and_offers_do_not_overtake_it() {
    let mut node = Node::connected();
    node.offer(1, 8192, 90);
    node.offer(2, 4096, 90);
    node.start(2, Some(2), 4096, 10240);
    let admission = node.core.admission();
    assert_eq!((admission.committed_mib, admission.waiting), (12288, 1));
    // It is told to wait by not being told to go on.
    assert_eq!(node.job(2, JobEvent::Alive { output_len: 0 }), []);
    // A small offer would fit, and so would a start without a reservation.
    let overtaking = node.offer(3, 1024, 90);
    assert_eq!(refusal(&overtaking), RefusalReason::Memory);
    let effects = node.start(4, None, 1024, 1024);
    assert_eq!(refused(&effects, 4), RefusalReason::Memory);
    // What it waits for is given as soon as it is there.
    let effects = node.hub(HubJobMessage::Release {
        reservation: res(1),
    });
    assert!(effects.contains(&Effect::Grant { job: id(2) }));
    assert_eq!(node.kept.last(), Some(&Record::Granted { job: id(2) }));
    assert_eq!(node.core.admission().committed_mib, 10240);
    assert_eq!(node.offer(3, 1024, 90), ACCEPTED_90);
}

/// ADM-34
#[test]
fn a_job_waits_for_600_seconds_and_is_told_what_was_short() {
    let mut node = Node::connected();
    node.offer(1, 12288, 600);
    node.start(2, None, 4096, 10240);
    node.job(2, JobEvent::Alive { output_len: 0 });
    node.offer(1, 1, 600);
    assert_eq!(node.wait(599), []);
    node.offer(1, 1, 600);
    let short = crate::ledger::Resource::Memory;
    let denied = Effect::Deny { job: id(2), short };
    assert_eq!(node.wait(1), [denied]);
    assert_eq!(node.core.admission().waiting, 0);
    assert_eq!(node.core.admission().committed_mib, 12288);
}

/// ADM-34
#[test]
fn what_no_ledger_could_grant_is_not_waited_for() {
    let mut node = Node::connected();
    node.start(1, None, 4096, 32768);
    let alive = node.job(1, JobEvent::Alive { output_len: 0 });
    assert!(matches!(alive[..], [Effect::Deny { .. }]), "{alive:?}");
    assert_eq!(node.offer(2, 16384, 90), ACCEPTED_90);
}

/// DISP-42, DISP-43
#[test]
fn a_start_on_a_reservation_that_is_gone_is_admitted_if_it_fits_now() {
    let mut node = Node::connected();
    let effects = node.start(1, Some(1), 4096, 4096);
    assert_eq!(sent(&effects), [state(1, RunState::Accepted)]);
    let effects = node.start(2, Some(2), 16384, 1024);
    assert_eq!(refused(&effects, 2), RefusalReason::NoReservation);
    assert!(!spawns(&effects, 2));
    let effects = node.start(3, None, 16384, 1024);
    assert_eq!(refused(&effects, 3), RefusalReason::Memory);
    assert_eq!(node.core.admission().waiting, 0);
}

#[test]
fn more_cpus_than_a_job_may_have_are_refused() {
    let mut node = Node::connected();
    let mut wide = envelope(1024);
    wide.cpus = 9;
    let effects = node.hub(HubJobMessage::Offer {
        reservation: res(1),
        envelope: wide,
        lease_secs: 90,
    });
    let [NodeJobMessage::OfferReply { reply, .. }] = &sent(&effects)[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(refusal(reply), RefusalReason::Cpus);
}

#[test]
fn a_budget_that_shrinks_takes_nothing_away_and_one_that_grows_lets_jobs_go_on() {
    let mut node = Node::connected();
    node.offer(1, 8192, 600);
    node.start(2, None, 4096, 8200);
    node.job(2, JobEvent::Alive { output_len: 0 });
    let budgets = |mem| Budgets {
        mem_mib: Some(mem),
        disk_bytes: None,
    };
    assert_eq!(node.give(Input::Budgets(budgets(1024))), []);
    assert_eq!(node.core.admission().committed_mib, 12288);
    let effects = node.give(Input::Budgets(budgets(32768)));
    assert_eq!(effects, [Effect::Grant { job: id(2) }]);
}
