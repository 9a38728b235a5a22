//! Relays: the server each is bound to, and their sessions.

use vk_hub_core::{
    Approve, Decision, Effect, FromRelay, Input, OperatorRequest, Record, ServerNumber,
    SessionHandle,
};
use vk_hub_proto::node_session::RefusedCode;
use vk_hub_proto::relay_session::ServerStatus;

use crate::bench::{Bench, relay_closed, relay_id, relay_report, server_status};
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

/// SESS-08, SESS-26
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
