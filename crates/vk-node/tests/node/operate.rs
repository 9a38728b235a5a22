//! What an operator on the host has the daemon do.

use vk_hub_proto::ReservationId;
use vk_hub_proto::client::Envelope;
use vk_hub_proto::dispatch::{HubJobMessage, NodeJobMessage, OfferReply, RefusalReason, RunState};
use vk_hub_proto::node_session::NodeState;
use vk_node::admin::{self, CallError};

use crate::daemon::Node;
use crate::gate::Gate;
use crate::hub::{Hub, Session};
use crate::session::{end, id, ready, started};

async fn offered(session: &mut Session, number: u8) -> OfferReply {
    let offer = HubJobMessage::Offer {
        reservation: ReservationId::from_bytes([number; 16]),
        envelope: Envelope {
            mem_mib: 512,
            cpus: 1,
            disk_bytes: 1 << 20,
        },
        lease_secs: 60,
    };
    session.job(offer).await;
    loop {
        if let NodeJobMessage::OfferReply { reply, .. } = session.next_job().await {
            return reply;
        }
    }
}

/// Takes a job that says nothing to its end.
async fn over(session: &mut Session, number: u8) {
    let job = id(number);
    loop {
        if let NodeJobMessage::Result { job: of, .. } = session.next_job().await
            && of == job
        {
            break;
        }
    }
    session.job(HubJobMessage::Recorded { job }).await;
}

fn is_not_ready(reply: &OfferReply) -> bool {
    matches!(reply, OfferReply::Refused { reason, .. } if *reason == RefusalReason::NotReady)
}

/// DISP-31, DISP-39
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_is_kept_before_it_is_answered_and_tells_how_far_it_is() {
    let (hub, node, daemon, mut session) = ready().await;
    let gate = Gate::new(node.path(), "1");
    started(&mut session, 4, &["boot", &gate.line()]).await;
    let standing = gate.reached();

    admin::drain(&node.state).await.unwrap();
    let journal = std::fs::read(node.state.journal()).unwrap();
    assert!(String::from_utf8_lossy(&journal).contains("commanded"));
    let status = admin::status(&node.state).await.unwrap();
    assert_eq!((status.state, status.jobs), (NodeState::Draining, 1));
    assert!(is_not_ready(&offered(&mut session, 7).await));

    // Whoever waits is told when the job is over, and no sooner; its result is left until the hub
    // has it.
    let waiting = tokio::spawn({
        let (state, known) = (node.state.clone(), status.clone());
        async move { admin::change(&state, &known).await.unwrap() }
    });
    session.fence().await;
    assert!(!waiting.is_finished());
    standing.open();
    let finished = end(&mut session).await;
    let job = id(4);
    assert!(
        matches!(
            finished,
            NodeJobMessage::Job {
                state: RunState::Finished,
                ..
            }
        ),
        "{finished:?}"
    );
    session
        .job(HubJobMessage::OutputAck { job, offset: 0 })
        .await;
    let result = session.next_job().await;
    assert!(
        matches!(result, NodeJobMessage::Result { .. }),
        "{result:?}"
    );
    session.job(HubJobMessage::Recorded { job }).await;
    let mut now = waiting.await.unwrap();
    while now.jobs > 0 {
        now = admin::change(&node.state, &now).await.unwrap();
    }
    assert_eq!((now.state, now.jobs), (NodeState::Drained, 0));

    // It outlives the daemon.
    assert!(daemon.terminate().success());
    let daemon = node.start();
    let mut session = hub.welcome().await;
    assert!(is_not_ready(&offered(&mut session, 8).await));
    admin::undrain(&node.state).await.unwrap();
    let taken = offered(&mut session, 9).await;
    assert_eq!(taken, OfferReply::Accepted { lease_secs: 60 });
    assert!(daemon.terminate().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_where_no_node_runs_says_so() {
    let hub = Hub::new().await;
    let node = Node::joined(&hub.url);
    let error = admin::drain(&node.state).await.unwrap_err();
    assert!(matches!(error, CallError::NotRunning { .. }), "{error}");
}

/// ADM-33
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_past_runs_used_is_set_aside_where_the_operator_wants_it() {
    let hub = Hub::new().await;
    let node = Node::joined(&hub.url);
    let file = node.path().join("config.toml");
    let mut config = std::fs::read_to_string(&file).unwrap();
    config.push_str("from_history = true\n");
    std::fs::write(&file, config).unwrap();
    let daemon = node.start();
    let mut session = hub.welcome().await;
    assert!(matches!(
        session.next_job().await,
        NodeJobMessage::Held { .. }
    ));
    for number in 1..=5 {
        started(&mut session, number, &["used 800"]).await;
        over(&mut session, number).await;
        // Four runs are too few to go by.
        let gate = Gate::new(node.path(), &number.to_string());
        let other = 100 + number;
        started(&mut session, other, &[&gate.line()]).await;
        let standing = gate.reached();
        let status = admin::status(&node.state).await.unwrap();
        let aside = if number < 5 { 4096 } else { 1000 };
        assert_eq!(status.admission.committed_mib, aside, "after {number}");
        standing.open();
        over(&mut session, other).await;
    }
    assert!(daemon.terminate().success());
}

/// DISP-31
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_in_maintenance_stays_so_until_its_operator_ends_it() {
    let (hub, node, daemon, mut session) = ready().await;
    admin::maintain(&node.state).await.unwrap();
    assert!(is_not_ready(&offered(&mut session, 7).await));
    assert!(daemon.terminate().success());
    let daemon = node.start();
    let mut session = hub.welcome().await;
    let status = admin::status(&node.state).await.unwrap();
    assert_eq!(status.state, NodeState::Maintenance);
    let OfferReply::Refused { message, .. } = offered(&mut session, 8).await else {
        panic!("it is in maintenance")
    };
    assert_eq!(message.as_deref(), Some("the node is in maintenance"));
    admin::undrain(&node.state).await.unwrap();
    let taken = offered(&mut session, 9).await;
    assert_eq!(taken, OfferReply::Accepted { lease_secs: 60 });
    assert!(daemon.terminate().success());
}
