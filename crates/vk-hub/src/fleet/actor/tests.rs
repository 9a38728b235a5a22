use std::time::Duration;

use tokio::time::timeout;
use vk_hub_core::{Answer, OperatorRequest, Settings};
use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::{Name, NodeId};

use super::{Fleet, OpenStore};
use crate::fleet::disk::DiskError;
use crate::fleet::failing::Failing;
use crate::fleet::{FleetHandle, Reply};

/// Whatever is waited for comes within this, or the test fails.
const SOON: Duration = Duration::from_secs(20);

async fn add(handle: &FleetHandle, number: u8) -> Reply {
    let request = OperatorRequest::AddNode {
        node: NodeId::from_bytes([number; 16]),
        pools: vec![Name::default()],
    };
    timeout(SOON, handle.operator(request))
        .await
        .expect("no request waits for a disk that is broken")
        .unwrap()
}

fn unavailable(reply: &Reply) -> bool {
    matches!(&reply.answer, Answer::Refused(refusal) if refusal.error.code == ErrorCode::Unavailable)
}

/// ERR-19
#[tokio::test]
async fn while_the_store_fails_requests_are_refused_and_sessions_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = Failing::default();
    let opener = store.clone();
    let open: OpenStore = Box::new(move || {
        opener.check().map_err(DiskError::from)?;
        Ok(opener.boxed())
    });
    let settings = Settings::default();
    let opened = Fleet::open(settings, open, dir.path().join("jobs"), Default::default());
    let (fleet, handle) = opened.unwrap();
    let running = tokio::spawn(fleet.run());
    assert_eq!(add(&handle, 1).await.answer, Answer::Done);

    store.fail(true);
    let lost = OperatorRequest::AddNode {
        node: NodeId::from_bytes([2; 16]),
        pools: vec![Name::default()],
    };
    let lost = handle.operator(lost).await;
    assert!(lost.is_err(), "it was not kept, and nobody says it was");
    assert!(unavailable(&add(&handle, 3).await));
    let look = timeout(SOON, handle.look(|fleet| fleet.stopped().is_some())).await;
    assert_eq!(look.unwrap(), Ok(true), "operators see why");
    let node = NodeId::from_bytes([1; 16]);
    let mut session = handle.open_session(node, 3).await.unwrap();
    let told = timeout(SOON, session.inbox.recv()).await.unwrap();
    assert!(told.is_some_and(|message| format!("{message:?}").contains("Refused")));
    assert!(timeout(SOON, session.inbox.recv()).await.unwrap().is_none());

    store.fail(false);
    let works = async {
        while unavailable(&add(&handle, 4).await) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(SOON, works).await.unwrap();
    let nodes = handle.look(|fleet| fleet.nodes().count()).await;
    assert_eq!(nodes, Ok(2), "what was kept, and nothing else");
    running.abort();
}
