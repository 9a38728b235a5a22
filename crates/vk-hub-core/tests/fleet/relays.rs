//! Relays: the server each is bound to, and their sessions.

use proptest::prelude::*;
use vk_hub_core::{
    Answer, Approve, Decision, Effect, FromRelay, Input, OperatorRequest, Record, ServerNumber,
    SessionHandle,
};
use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::node_session::RefusedCode;
use vk_hub_proto::relay_session::ServerStatus;

use crate::bench::{Bench, code, relay_closed, relay_id, relay_report, server_status, submission};
use crate::property::rows;

fn asking() -> Bench {
    Bench::with(|settings| settings.approve = Approve::Ask)
}

fn audited(bench: &Bench, what: &str) -> usize {
    let lines = bench.records.iter().filter(|record| match record {
        Record::Audited { what: found, .. } => found == what,
        _ => false,
    });
    lines.count()
}

/// SESS-08
#[test]
fn a_report_is_answered_with_how_the_server_stands_and_a_decision_is_told_at_once() {
    let mut bench = asking();
    let (session, opened) = bench.open_relay(1);
    assert_eq!(opened, [], "nothing is said before the report");
    let pending = bench.reports(session, relay_report(1));
    assert_eq!(pending, Some(ServerStatus::Pending));
    let again = bench.reports(session, relay_report(1));
    assert_eq!(again, pending, "each report is answered");
    for (approved, status) in [
        (true, ServerStatus::Approved),
        (false, ServerStatus::Rejected),
    ] {
        let effects = bench.decides(1, approved);
        assert_eq!(server_status(&effects, session), Some(status));
        let effects = bench.decides(1, approved);
        assert_eq!(server_status(&effects, session), None, "told once");
    }
    assert_eq!(audited(&bench, "GitLab server first reported"), 1);
    assert_eq!(audited(&bench, "GitLab server rejected"), 2);
}

/// SESS-19
#[test]
fn all_that_is_not_approved_says_what_to_do() {
    let mut bench = asking();
    let (session, _) = bench.open_relay(1);
    let message = FromRelay::Report(Box::new(relay_report(1)));
    let effects = bench.step(Input::Relay { session, message });
    let [
        Effect::Server {
            message: Some(text),
            ..
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert!(text.contains("vk-hub gitlab approve s1"), "{text}");
    assert!(text.contains("https://gitlab.example.com"), "{text}");
    let effects = bench.decides(1, true);
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Server { message: None, .. })),
        "{effects:?}"
    );
}

#[test]
fn with_approve_all_a_server_is_approved_unless_it_was_rejected() {
    let mut bench = Bench::new();
    let (session, _) = bench.open_relay(1);
    assert_eq!(
        bench.reports(session, relay_report(1)),
        Some(ServerStatus::Approved)
    );
    assert_eq!(
        bench.reports(session, relay_report(2)),
        Some(ServerStatus::Approved)
    );
    let effects = bench.decides(2, false);
    assert_eq!(
        server_status(&effects, session),
        Some(ServerStatus::Rejected)
    );
}

/// SESS-24, SESS-25
#[test]
fn another_key_or_url_than_the_first_makes_a_relay_rebound_until_it_is_approved() {
    let mut bench = asking();
    let (session, _) = bench.open_relay(1);
    bench.reports(session, relay_report(1));
    bench.decides(1, true);
    assert_eq!(
        bench.reports(session, relay_report(2)),
        Some(ServerStatus::Rebound)
    );
    assert_eq!(audited(&bench, "relay's GitLab server changed"), 1);
    let told = bench.records.iter().any(|record| match record {
        Record::Audited { detail, .. } => detail.ends_with("vk-hub gitlab approve s2"),
        _ => false,
    });
    assert!(told, "the audit log says how to approve it");
    let effects = bench.decides(2, true);
    assert_eq!(
        server_status(&effects, session),
        Some(ServerStatus::Approved)
    );
    let mut moved = relay_report(2);
    moved.server.url = "https://other.example.com".to_owned();
    assert_eq!(bench.reports(session, moved), Some(ServerStatus::Rebound));
    assert_eq!(
        bench.reports(session, relay_report(1)),
        Some(ServerStatus::Approved),
        "what was approved for this relay stays so"
    );
}

/// SESS-24
#[test]
fn a_server_approved_for_one_relay_does_not_unbind_another() {
    let mut bench = asking();
    let (first, _) = bench.open_relay(1);
    bench.reports(first, relay_report(1));
    bench.decides(1, true);
    let (second, _) = bench.open_relay(2);
    assert_eq!(
        bench.reports(second, relay_report(2)),
        Some(ServerStatus::Pending),
        "a first report binds"
    );
    bench.decides(2, true);
    assert_eq!(
        bench.reports(first, relay_report(2)),
        Some(ServerStatus::Rebound)
    );
    bench.decides(2, true);
    assert_eq!(
        bench.reports(first, relay_report(2)),
        Some(ServerStatus::Approved)
    );
    assert_eq!(
        bench.reports(second, relay_report(2)),
        Some(ServerStatus::Approved)
    );
}

/// SESS-24
#[test]
fn servers_decisions_and_bindings_outlive_the_hub() {
    let mut bench = asking();
    let (session, _) = bench.open_relay(1);
    bench.reports(session, relay_report(1));
    bench.decides(1, true);
    bench.reports(session, relay_report(2));
    let (all, kept) = (bench.records.clone(), rows(&bench.records));
    for records in [all, kept] {
        bench.restart_from(records);
        let servers: Vec<_> = bench.fleet.gitlab_servers().collect();
        let decisions: Vec<_> = servers.iter().map(|one| one.decision).collect();
        assert_eq!(decisions, [Decision::Approved, Decision::Pending]);
        let (session, _) = bench.open_relay(1);
        assert_eq!(
            bench.reports(session, relay_report(2)),
            Some(ServerStatus::Rebound)
        );
        assert_eq!(
            bench.reports(session, relay_report(1)),
            Some(ServerStatus::Approved)
        );
        bench.reports(session, relay_report(2));
    }
}

/// SESS-27
#[test]
fn the_newest_session_of_a_relay_wins_and_another_system_id_is_audited() {
    let mut bench = asking();
    let (older, _) = bench.open_relay(1);
    bench.reports(older, relay_report(1));
    let (newer, effects) = bench.open_relay(1);
    assert_eq!(relay_closed(&effects, older), Some(RefusedCode::Superseded));
    let mut cloned = relay_report(1);
    cloned.system_id = "s_2".to_owned();
    assert_eq!(bench.reports(older, cloned.clone()), None, "it is over");
    assert_eq!(audited(&bench, "relay's system ID changed"), 0);
    bench.reports(newer, cloned);
    assert_eq!(audited(&bench, "relay's system ID changed"), 1);
    bench.close(older);
    let effects = bench.decides(1, true);
    assert_eq!(server_status(&effects, newer), Some(ServerStatus::Approved));
}

/// SESS-21
#[test]
fn a_removed_relay_is_refused_for_good_and_forgotten() {
    let mut bench = asking();
    let (session, _) = bench.open_relay(1);
    bench.reports(session, relay_report(1));
    let relay = relay_id(1);
    let (_, effects) = bench.operate(OperatorRequest::RemoveRelay { relay });
    assert_eq!(relay_closed(&effects, session), Some(RefusedCode::Revoked));
    assert_eq!(bench.fleet.relays().count(), 0);
    assert_eq!(bench.reports(session, relay_report(1)), None);
    bench.restart();
    assert_eq!(bench.fleet.relays().count(), 0);
}

#[test]
fn a_hub_full_of_servers_lets_go_of_one_that_nobody_needs_or_says_so() {
    let mut bench = Bench::with(|settings| {
        settings.approve = Approve::Ask;
        settings.servers = 2;
    });
    let (first, _) = bench.open_relay(1);
    bench.reports(first, relay_report(1));
    let (second, _) = bench.open_relay(2);
    bench.reports(second, relay_report(2));
    let (third, _) = bench.open_relay(3);
    let message = FromRelay::Report(Box::new(relay_report(3)));
    let effects = bench.step(Input::Relay {
        session: third,
        message: message.clone(),
    });
    assert_eq!(relay_closed(&effects, third), Some(RefusedCode::Internal));
    let relay = relay_id(2);
    bench.operate(OperatorRequest::RemoveRelay { relay });
    let (third, _) = bench.open_relay(3);
    bench.step(Input::Relay {
        session: third,
        message,
    });
    let numbers: Vec<_> = bench.fleet.gitlab_servers().map(|one| one.number).collect();
    assert_eq!(numbers, [ServerNumber(1), ServerNumber(3)]);
}

#[test]
fn a_store_that_failed_closes_relays_sessions_too() {
    let mut bench = Bench::new();
    let (session, _) = bench.open_relay(1);
    let why = "no space".to_owned();
    let effects = bench.step(Input::StoreFailed { why });
    assert_eq!(relay_closed(&effects, session), Some(RefusedCode::Internal));
    let late = SessionHandle(9_999);
    let relay = relay_id(1);
    let effects = bench.step(Input::RelayOpened {
        session: late,
        relay,
    });
    assert_eq!(relay_closed(&effects, late), Some(RefusedCode::Internal));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Open(u8),
    Close(u8),
    Report(u8, u8),
    Decide(u32, bool),
    Remove(u8),
    Submit(u8),
    /// The hub dies and opens from all records, or from the rows that count.
    Restart(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let relay = 1_u8..4;
    prop_oneof![
        2 => relay.clone().prop_map(Op::Open),
        1 => relay.clone().prop_map(Op::Close),
        6 => (relay.clone(), 1_u8..6).prop_map(|(relay, key)| Op::Report(relay, key)),
        3 => (1_u32..8, prop::bool::weighted(0.7)).prop_map(|(s, yes)| Op::Decide(s, yes)),
        1 => relay.clone().prop_map(Op::Remove),
        4 => relay.prop_map(Op::Submit),
        1 => any::<bool>().prop_map(Op::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever happens, what a relay was told last is how its server stands (the bench asks the
    /// machine after every step), a submission is judged by exactly that, and a hub that restarts
    /// judges as before.
    #[test]
    fn a_submission_is_judged_by_what_the_relay_was_told(ops in prop::collection::vec(op(), 1..60)) {
        let mut bench = Bench::with(|settings| {
            settings.approve = Approve::Ask;
            settings.servers = 4;
        });
        let mut sessions = std::collections::BTreeMap::new();
        for (number, op) in ops.into_iter().enumerate() {
            match op {
                Op::Open(relay) => {
                    sessions.insert(relay, bench.open_relay(relay).0);
                }
                Op::Close(relay) => {
                    if let Some(session) = sessions.remove(&relay) {
                        bench.close(session);
                    }
                }
                Op::Report(relay, key) => {
                    if let Some(session) = sessions.get(&relay) {
                        bench.reports(*session, relay_report(key));
                    }
                }
                Op::Decide(server, approved) => {
                    bench.operate(OperatorRequest::DecideServer {
                        server: ServerNumber(server),
                        approved,
                        all_projects: Some(true),
                    });
                }
                Op::Remove(relay) => {
                    sessions.remove(&relay);
                    let relay = relay_id(relay);
                    bench.operate(OperatorRequest::RemoveRelay { relay });
                }
                Op::Submit(relay) => submits(&mut bench, relay, u8::try_from(number).unwrap()),
                Op::Restart(all) => {
                    let before = standing(&bench);
                    let records = if all { bench.records.clone() } else { rows(&bench.records) };
                    bench.restart_from(records);
                    sessions.clear();
                    prop_assert_eq!(standing(&bench), before);
                }
            }
        }
    }
}

/// How each relay's server stands, of those that have ever reported one.
fn standing(bench: &Bench) -> Vec<(vk_hub_proto::RelayId, ServerStatus)> {
    let all = bench.fleet.relays();
    all.filter_map(|relay| Some((relay.relay, relay.status?)))
        .collect()
}

fn submits(bench: &mut Bench, relay: u8, number: u8) {
    let mut relays = bench.fleet.relays();
    let known = relays.find(|one| one.relay == relay_id(relay));
    let status = known.and_then(|one| one.status);
    drop(relays);
    let request = Bench::submit_request(number, submission(number, None));
    let answer = bench.ask_as(relay, request);
    let expected = match status {
        Some(ServerStatus::Approved) => {
            assert!(matches!(answer, Answer::Submitted(_)), "{answer:?}");
            return;
        }
        Some(ServerStatus::Rejected) => ErrorCode::ProjectRejected,
        Some(ServerStatus::Rebound) => ErrorCode::Forbidden,
        Some(ServerStatus::Pending) | None => ErrorCode::ApprovalPending,
    };
    assert_eq!(code(&answer), (403, expected), "{status:?}");
}

/// SESS-21
#[test]
fn a_relay_that_reports_another_server_too_often_is_closed_and_may_again_after_a_while() {
    let every = std::time::Duration::from_secs(5);
    let mut bench = Bench::with(|settings| settings.relay_changes = (4, every));
    let (mut session, _) = bench.open_relay(1);
    let reports = |bench: &mut Bench, session, key| {
        let message = FromRelay::Report(Box::new(relay_report(key)));
        bench.step(Input::Relay { session, message })
    };
    let taken = |effects: &[Effect], session| server_status(effects, session).is_some();
    for number in 0..4 {
        assert!(
            taken(&reports(&mut bench, session, number % 2), session),
            "{number}"
        );
    }
    for _ in 0..100 {
        assert!(
            taken(&reports(&mut bench, session, 1), session),
            "nothing new"
        );
    }
    let audited = bench.records.len();
    let effects = reports(&mut bench, session, 0);
    let closed = relay_closed(&effects, session);
    assert_eq!(closed, Some(RefusedCode::Protocol), "{effects:?}");
    assert_eq!(bench.records.len(), audited, "it costs nothing");
    for _ in 0..3 {
        // Another session has no share of its own.
        session = bench.open_relay(1).0;
        let effects = reports(&mut bench, session, 0);
        assert_eq!(relay_closed(&effects, session), Some(RefusedCode::Protocol));
    }
    let (other, _) = bench.open_relay(2);
    assert!(
        taken(&reports(&mut bench, other, 0), other),
        "nor another relay less"
    );
    session = bench.open_relay(1).0;
    assert!(taken(&reports(&mut bench, session, 1), session));
    bench.pass(every);
    assert!(taken(&reports(&mut bench, session, 0), session), "one more");
    let effects = reports(&mut bench, session, 1);
    assert_eq!(relay_closed(&effects, session), Some(RefusedCode::Protocol));
}
