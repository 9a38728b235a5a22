//! Relays' sessions, and what operators decide while they are open.

use vk_hub::store::MemberKind;
use vk_hub_client::Key;
use vk_hub_client::session::SessionError;
use vk_hub_core::{OperatorRequest, ServerNumber};
use vk_hub_proto::RelayId;
use vk_hub_proto::client::{ErrorCode, JobSubmission};
use vk_hub_proto::node_session::{RefusedCode, VersionRange};
use vk_hub_proto::relay_session::{RelayMessage, RelayRunnerState, RunnerBeat, ServerStatus};

use crate::hub::{Hub, placement, request_id, spec};

const GITLAB: &str = "https://gitlab.example.com";

fn approve() -> OperatorRequest {
    OperatorRequest::DecideServer {
        server: ServerNumber(1),
        approved: true,
        all_projects: Some(true),
    }
}

fn reject() -> OperatorRequest {
    OperatorRequest::DecideServer {
        server: ServerNumber(1),
        approved: false,
        all_projects: None,
    }
}

fn submission(number: u8) -> JobSubmission {
    JobSubmission {
        request_id: request_id(number),
        placement: placement(),
        reservation: None,
        place_within_secs: 300,
        spec: spec(),
    }
}

/// SESS-08, ERR-10, ERR-11
#[tokio::test]
async fn a_relay_hears_at_once_what_an_operator_decides_and_its_jobs_go_by_that() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start_asking(dir.path().join("data")).await;
    let client = hub.relay().await;
    let signer = client.into_signer();
    let (id, key) = (signer.relay, signer.key);
    let mut relay = hub.relay_session(id, &key).await.unwrap();
    let client =
        vk_hub_client::api::Client::new(hub.dialer(), vk_hub_client::Signer { relay: id, key });
    relay.reports(GITLAB, 1).await;
    assert_eq!(relay.status().await, ServerStatus::Pending);
    let refused = client.submit(&submission(1)).await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::ApprovalPending));
    hub.operator(approve()).await;
    assert_eq!(relay.status().await, ServerStatus::Approved);
    client.submit(&submission(2)).await.unwrap();
    hub.operator(reject()).await;
    assert_eq!(relay.status().await, ServerStatus::Rejected);
    let refused = client.submit(&submission(3)).await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::ProjectRejected));
}

/// SESS-24, SESS-25
#[tokio::test]
async fn what_was_approved_is_so_after_a_restart_and_a_new_key_is_another_server() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start_asking(dir.path().join("data")).await;
    let (id, key) = hub.enrolled().await;
    let mut relay = hub.relay_session(id, &key).await.unwrap();
    relay.reports(GITLAB, 1).await;
    assert_eq!(relay.status().await, ServerStatus::Pending);
    hub.operator(approve()).await;
    assert_eq!(relay.status().await, ServerStatus::Approved);
    let hub = Hub::start_asking(hub.stop()).await;
    let mut relay = hub.relay_session(id, &key).await.unwrap();
    relay.reports(GITLAB, 1).await;
    assert_eq!(relay.status().await, ServerStatus::Approved);
    relay.reports(GITLAB, 2).await;
    assert_eq!(relay.status().await, ServerStatus::Rebound);
}

/// SESS-21, CRED-04
#[tokio::test]
async fn a_relay_that_is_none_or_is_removed_is_refused_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start_asking(dir.path().join("data")).await;
    let (id, key) = hub.enrolled().await;
    let code = |opened: Result<_, SessionError>| match opened.map(|_: crate::hub::Relay| ()) {
        Err(error @ SessionError::Refused { code, .. }) => {
            assert!(error.is_for_good());
            code
        }
        other => panic!("{other:?}"),
    };
    let stranger = RelayId::from_bytes([9; 16]);
    let refused = hub.relay_session(stranger, &key).await;
    assert_eq!(code(refused), RefusedCode::NotEnrolled);
    let refused = hub.relay_session(id, &Key::generate().unwrap()).await;
    assert_eq!(code(refused), RefusedCode::BadSignature);
    let mut relay = hub.relay_session(id, &key).await.unwrap();
    relay.reports(GITLAB, 1).await;
    relay.status().await;
    assert!(
        hub.members
            .remove(MemberKind::GitLab, id.as_bytes())
            .unwrap()
    );
    hub.operator(OperatorRequest::RemoveRelay { relay: id })
        .await;
    assert_eq!(relay.refused().await, RefusedCode::Revoked);
    let refused = hub.relay_session(id, &key).await;
    assert_eq!(code(refused), RefusedCode::NotEnrolled);
}

/// SESS-16, SESS-21
#[tokio::test]
async fn versions_that_do_not_meet_are_refused_and_may_be_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start_asking(dir.path().join("data")).await;
    let (id, key) = hub.enrolled().await;
    let later = VersionRange { min: 2, max: 9 };
    let refused = hub.relay_session_of(id, &key, later).await;
    let Err(error @ SessionError::Refused { code, .. }) = refused.map(|_| ()) else {
        panic!("a refusal")
    };
    assert_eq!((code, error.is_for_good()), (RefusedCode::Version, false));
    let wide = VersionRange { min: 1, max: 9 };
    let opened = hub.relay_session_of(id, &key, wide).await.unwrap();
    assert_eq!(opened.0.version, 1);
}

/// SESS-27
#[tokio::test]
async fn a_relays_older_session_is_told_that_it_was_superseded() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start_asking(dir.path().join("data")).await;
    let (id, key) = hub.enrolled().await;
    let mut older = hub.relay_session(id, &key).await.unwrap();
    let mut newer = hub.relay_session(id, &key).await.unwrap();
    assert_eq!(older.refused().await, RefusedCode::Superseded);
    assert!(matches!(older.hears().await, Err(SessionError::Closed)));
    newer.reports(GITLAB, 1).await;
    assert_eq!(newer.status().await, ServerStatus::Pending);
}

#[tokio::test]
async fn a_message_of_the_handshake_or_a_report_that_is_none_ends_an_open_session() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start_asking(dir.path().join("data")).await;
    let (id, key) = hub.enrolled().await;
    let mut relay = hub.relay_session(id, &key).await.unwrap();
    let signature = vk_hub_proto::hex::Hex([0; 64]);
    relay.say(RelayMessage::Auth { signature }).await;
    assert_eq!(relay.refused().await, RefusedCode::Protocol);
    let mut relay = hub.relay_session(id, &key).await.unwrap();
    relay.reports("", 1).await;
    assert_eq!(relay.refused().await, RefusedCode::Protocol);
}

#[tokio::test]
async fn an_operator_sees_what_a_relay_reports_while_its_session_lasts() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start_asking(dir.path().join("data")).await;
    let (id, key) = hub.enrolled().await;
    let mut relay = hub.relay_session(id, &key).await.unwrap();
    let beat = RunnerBeat {
        name: "ci".into(),
        state: RelayRunnerState::ServerPending,
        requests: 0,
        jobs: 2,
        last_answer: None,
    };
    let runners = vec![beat.clone()];
    relay.say(RelayMessage::Heartbeat { runners }).await;
    relay.reports(GITLAB, 1).await;
    relay.status().await;
    let look = move |fleet: &vk_hub_core::Fleet| {
        let one = fleet.relays().next().unwrap();
        let host = one.report.unwrap().host.clone();
        (one.connected, host, one.runners.to_vec(), one.status)
    };
    let seen = hub.fleet.look(look).await.unwrap();
    let pending = Some(ServerStatus::Pending);
    assert_eq!(seen, (true, "relay-host".into(), vec![beat], pending));
}
