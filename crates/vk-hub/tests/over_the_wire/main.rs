//! A real hub on loopback: enrolment, signed requests over TLS, a node's session, one whole job.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod caps;
mod hub;
mod relays;
mod slow;

use hub::*;

use std::path::PathBuf;

use tokio::time::timeout;
use vk_hub::store::MemberKind;
use vk_hub_client::api::{ApiError, Client, OutputRead};
use vk_hub_client::session::Received;
use vk_hub_client::{Key, Signer, enroll_node, enroll_relay};
use vk_hub_proto::Secret;
use vk_hub_proto::client::*;
use vk_hub_proto::dispatch::*;
use vk_hub_proto::job::*;
use vk_hub_proto::node_session::*;

/// API-01, API-02, API-05, API-06, API-07, API-09, FLOW-09, FLOW-15, FLOW-19, ENR-01, ENR-20, AUTH-01, CRED-10
#[tokio::test]
async fn one_job_from_capacity_to_settling() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path().join("data")).await;
    let client = hub.relay().await;
    let (id, key) = hub.node().await;
    let ask = CapacityRequest {
        placement: placement(),
        after: None,
        wait_secs: 0,
    };
    let before = client.capacity(&ask).await.unwrap();
    assert_eq!(before.fits, 0, "no node is there");
    let mut node = hub.session(id, &key).await;
    let waiting = CapacityRequest {
        after: Some(before.revision),
        wait_secs: 20,
        ..ask
    };
    let (capacity, ()) = tokio::join!(client.capacity(&waiting), node.ready(vec![]));
    assert_eq!(capacity.unwrap().fits, 2);

    let reserve = ReservationRequest {
        request_id: request_id(1),
        placement: placement(),
        lease_secs: 90,
        wait_secs: 20,
    };
    let answering = async {
        let HubJobMessage::Offer {
            reservation,
            lease_secs,
            ..
        } = node.hears().await
        else {
            panic!("an offer")
        };
        let reply = OfferReply::Accepted { lease_secs };
        node.job(NodeJobMessage::OfferReply { reservation, reply })
            .await;
        reservation
    };
    let (grant, reservation) = tokio::join!(client.reserve(&reserve), answering);
    let grant = grant.unwrap();
    assert_eq!(
        (grant.reservation, grant.node, grant.lease_secs),
        (reservation, id, 90)
    );

    let submission = JobSubmission {
        request_id: request_id(2),
        placement: placement(),
        reservation: Some(reservation),
        place_within_secs: 300,
        spec: spec(),
    };
    let view = client.submit(&submission).await.unwrap();
    let again = client.submit(&submission).await.unwrap();
    assert_eq!(again.id, view.id, "the same request is the same job");
    let HubJobMessage::Start {
        job,
        reservation: on,
        spec: sent,
        ..
    } = node.hears().await
    else {
        panic!("a start")
    };
    assert_eq!((job, on), (view.id, Some(reservation)));
    let JobSpec::GitlabCi(sent) = sent;
    assert_eq!(sent.token, Secret::from("s3cret-token-of-the-job"));

    node.job(NodeJobMessage::Job {
        job,
        state: RunState::Accepted,
    })
    .await;
    let data = Chunk::try_from(b"hello world\n".to_vec()).unwrap();
    node.job(NodeJobMessage::Output {
        job,
        offset: 0,
        data,
    })
    .await;
    assert_eq!(
        node.hears().await,
        HubJobMessage::OutputAck { job, offset: 12 }
    );
    let OutputRead::Bytes(read) = client.output(job, 6, 20).await.unwrap() else {
        panic!("bytes")
    };
    assert_eq!((&read.bytes[..], read.complete), (&b"world\n"[..], false));
    node.job(NodeJobMessage::Job {
        job,
        state: RunState::Finished,
    })
    .await;
    node.job(NodeJobMessage::Result {
        job,
        result: result(),
    })
    .await;
    assert_eq!(node.hears().await, HubJobMessage::Recorded { job });
    let done = client.view(job, None, 0).await.unwrap();
    assert_eq!((done.state, done.output_len), (JobState::Finished, 12));
    let OutputRead::Bytes(read) = client.output(job, 0, 0).await.unwrap() else {
        panic!("bytes")
    };
    assert_eq!(
        (&read.bytes[..], read.complete),
        (&b"hello world\n"[..], true)
    );
    assert_eq!(
        client.output(job, 99, 0).await.unwrap(),
        OutputRead::PastEnd { length: 12 }
    );
    client.settle(job).await.unwrap();
    client.settle(job).await.unwrap();
    let gone = client.output(job, 0, 0).await.unwrap_err();
    assert_eq!(gone.code(), Some(ErrorCode::NotFound));
    for file in files_below(&hub.stop()) {
        let bytes = std::fs::read(&file).unwrap();
        let secret = b"s3cret-token-of-the-job";
        let found = bytes.windows(secret.len()).any(|window| window == secret);
        assert!(!found, "the job's token is in {}", file.display());
    }
}

fn files_below(dir: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files_below(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// FAIL-23, FAIL-25, DISP-66, API-73
#[tokio::test]
async fn a_running_job_goes_on_over_a_hubs_restart_and_an_unaccepted_one_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path().join("data")).await;
    let client = hub.relay().await;
    let (id, key) = hub.node().await;
    let mut node = hub.session(id, &key).await;
    node.ready(vec![]).await;
    let submission = |number| JobSubmission {
        request_id: request_id(number),
        placement: placement(),
        reservation: None,
        place_within_secs: 300,
        spec: spec(),
    };
    let running = client.submit(&submission(1)).await.unwrap().id;
    let HubJobMessage::Start { job, .. } = node.hears().await else {
        panic!("a start")
    };
    node.job(NodeJobMessage::Job {
        job,
        state: RunState::Accepted,
    })
    .await;
    let data = Chunk::try_from(b"hello ".to_vec()).unwrap();
    node.job(NodeJobMessage::Output {
        job,
        offset: 0,
        data,
    })
    .await;
    assert_eq!(
        node.hears().await,
        HubJobMessage::OutputAck { job, offset: 6 }
    );
    drop(node);

    let signer = client.into_signer();
    let data_dir = hub.stop();
    let hub = Hub::start(data_dir).await;
    let client = Client::new(hub.dialer(), signer);
    let mut node = hub.session(id, &key).await;
    let state = RunState::Running {
        stage: "step_script".into(),
        activity: None,
        guest: None,
    };
    node.ready(vec![HeldJob {
        job,
        state,
        output_len: 12,
        finished: false,
    }])
    .await;
    assert_eq!(
        node.hears().await,
        HubJobMessage::OutputAck { job, offset: 6 }
    );
    let view = client.view(running, None, 0).await.unwrap();
    assert_eq!((view.state, view.output_len), (JobState::Running, 6));
    let again = client.submit(&submission(1)).await.unwrap();
    assert_eq!(again.id, running, "the request is remembered");
    hub.stop();
}

/// AUTH-05, AUTH-07, CRED-09, ENR-13, ERR-06
#[tokio::test]
async fn strangers_nodes_and_tokens_of_another_kind_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path().join("data")).await;
    let refused = |error: ApiError| {
        let ApiError::Refused {
            status, refusal, ..
        } = error
        else {
            panic!("{error}")
        };
        (status, refusal.code)
    };
    let stranger = Signer {
        relay: vk_hub_proto::RelayId::from_bytes([9; 16]),
        key: Key::generate().unwrap(),
    };
    let stranger = Client::new(hub.dialer(), stranger);
    let ask = CapacityRequest {
        placement: placement(),
        after: None,
        wait_secs: 0,
    };
    let unauthorized = (401, ErrorCode::Unauthorized);
    assert_eq!(
        refused(stranger.capacity(&ask).await.unwrap_err()),
        unauthorized
    );

    let (id, key) = hub.node().await;
    let relay = vk_hub_proto::RelayId::from_bytes(*id.as_bytes());
    let as_relay = Client::new(hub.dialer(), Signer { relay, key });
    assert_eq!(
        refused(as_relay.capacity(&ask).await.unwrap_err()),
        unauthorized
    );

    let relay = hub.relay().await.signer().relay;
    let wrong_key = Client::new(
        hub.dialer(),
        Signer {
            relay,
            key: Key::generate().unwrap(),
        },
    );
    assert_eq!(
        refused(wrong_key.capacity(&ask).await.unwrap_err()),
        unauthorized
    );

    let token = hub.token(MemberKind::Node);
    let key = Key::generate().unwrap();
    let mixed = enroll_relay(&hub.url, &token, None, &key, "relay")
        .await
        .unwrap_err();
    assert!(mixed.to_string().contains("401"), "{mixed}");
    enroll_node(&hub.url, &token, None, &key, "node")
        .await
        .unwrap();
    let other = Key::generate().unwrap();
    let used = enroll_node(&hub.url, &token, None, &other, "node")
        .await
        .unwrap_err();
    assert!(used.to_string().contains("used already"), "{used}");
    hub.stop();
}

/// SESS-27 of nodes: the newest session wins.
#[tokio::test]
async fn a_second_session_of_a_node_supersedes_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path().join("data")).await;
    let (id, key) = hub.node().await;
    let mut first = hub.session(id, &key).await;
    let _second = hub.session(id, &key).await;
    let refused = loop {
        match timeout(SOON, first.0.messages.receive()).await.unwrap() {
            Ok(Received::Message(HubMessage::Refused { code, .. })) => break code,
            Ok(_) => {}
            Err(error) => panic!("closed without a word: {error}"),
        }
    };
    assert_eq!(refused, RefusedCode::Superseded);
    hub.stop();
}

/// AUTH-19
#[tokio::test]
async fn a_second_request_on_a_connection_is_not_served() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path().join("data")).await;
    let mut connection = hub.dialer().dial().await.unwrap();
    let request = b"GET /v1/jobs/0 HTTP/1.1\r\nhost: x\r\n\r\n";
    connection
        .stream
        .write_all(&[request.as_slice(), request].concat())
        .await
        .unwrap();
    let mut answers = Vec::new();
    let read = timeout(SOON, connection.stream.read_to_end(&mut answers))
        .await
        .unwrap();
    // How the peer closes is TLS's affair; that it does, and after one answer, is ours.
    let _ = read;
    let answers = String::from_utf8(answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    hub.stop();
}
