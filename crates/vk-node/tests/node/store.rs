//! A disk that fails.

use vk_hub_proto::JobId;
use vk_hub_proto::dispatch::{NodeJobMessage, RunState};
use vk_hub_proto::node_session::NodeMessage;
use vk_node::admin;

use crate::daemon::Node;
use crate::hub::Hub;
use crate::scripted::start;

/// FLOW-16: what cannot be kept is not promised; the session ends, and the hub asks anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_cannot_be_kept_is_not_accepted() {
    let hub = Hub::new().await;
    let node = Node::joined(&hub.url);
    let _daemon = node.start();
    let mut session = hub.welcome().await;
    assert!(matches!(session.next().await, NodeMessage::Report(_)));
    assert!(matches!(
        session.next_job().await,
        NodeJobMessage::Held { .. }
    ));
    // The jobs' directory is in the way of itself.
    let jobs = node.state.jobs();
    std::fs::remove_dir(&jobs).unwrap();
    std::fs::write(&jobs, "").unwrap();
    session.job(start(4, &["say hello".to_owned()])).await;
    session.ends().await;
    let mut session = hub.welcome().await;
    let mut held = session.next().await;
    while matches!(held, NodeMessage::Report(_)) {
        held = session.next().await;
    }
    let NodeMessage::Job(NodeJobMessage::Held { jobs: held, .. }) = held else {
        panic!("held is due, not {held:?}")
    };
    assert!(held.is_empty());
    std::fs::remove_file(&jobs).unwrap();
    std::fs::create_dir(&jobs).unwrap();
    // Once the journal works again the job is taken.
    while admin::status(&node.state)
        .await
        .unwrap()
        .store_failed
        .is_some()
    {
        session.fence().await;
    }
    session.job(start(4, &["say hello".to_owned()])).await;
    let accepted = NodeJobMessage::Job {
        job: JobId::from_bytes([4; 16]),
        state: RunState::Accepted,
    };
    assert_eq!(session.next_job().await, accepted);
}
