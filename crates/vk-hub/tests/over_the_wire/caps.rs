//! How many connections there may be.

use std::time::Duration;

use tokio::time::timeout;
use vk_hub::http::Caps;
use vk_hub_proto::client::CapacityRequest;

use crate::hub::*;

/// Long enough for what would happen at once.
const A_WHILE: Duration = Duration::from_millis(500);

fn capacity(after: Option<u64>, wait_secs: u32) -> CapacityRequest {
    CapacityRequest {
        placement: placement(),
        after,
        wait_secs,
    }
}

/// API-68
#[tokio::test]
async fn a_connection_is_a_strangers_until_its_request_is_verified() {
    let dir = tempfile::tempdir().unwrap();
    let caps = Caps {
        strangers: 1,
        ..Caps::default()
    };
    let hub = Hub::start_with(dir.path().join("data"), caps).await;
    let relay = hub.relay().await;
    let stranger = hub.dialer().dial().await.unwrap();
    let dialer = hub.dialer();
    let second = timeout(A_WHILE, dialer.dial()).await;
    assert!(second.is_err(), "one stranger at a time, TLS or not");
    drop(stranger);
    let now = timeout(SOON, relay.capacity(&capacity(None, 0)))
        .await
        .unwrap();
    // Nothing changes: this waits at the hub, and keeps nobody out.
    let request = capacity(Some(now.unwrap().revision), 20);
    let mut waits = std::pin::pin!(relay.capacity(&request));
    assert!(timeout(A_WHILE, &mut waits).await.is_err());
    let other = timeout(SOON, relay.capacity(&capacity(None, 0))).await;
    assert!(other.unwrap().is_ok());
    assert!(
        timeout(A_WHILE, &mut waits).await.is_err(),
        "it still waits"
    );
    hub.stop();
}

/// API-68
#[tokio::test]
async fn a_session_keeps_its_seat_and_a_node_too_many_gets_503() {
    let dir = tempfile::tempdir().unwrap();
    let caps = Caps {
        nodes: 1,
        ..Caps::default()
    };
    let hub = Hub::start_with(dir.path().join("data"), caps).await;
    let (one, other) = (hub.node().await, hub.node().await);
    let node = hub.try_session(one.0, &one.1).await.unwrap();
    let Err(error) = hub.try_session(other.0, &other.1).await else {
        panic!("the seat is taken");
    };
    assert!(format!("{error:?}").contains("503"), "{error:?}");
    assert_eq!(hub.turned_away().nodes, 1);
    drop(node);
    timeout(SOON, async {
        // Its connection may take a moment to be gone.
        while hub.try_session(other.0, &other.1).await.is_err() {}
    })
    .await
    .unwrap();
    hub.stop();
}

/// API-68
#[tokio::test]
async fn a_client_too_many_gets_503_and_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let caps = Caps {
        clients: 1,
        ..Caps::default()
    };
    let hub = Hub::start_with(dir.path().join("data"), caps).await;
    let relay = hub.relay().await;
    let now = relay.capacity(&capacity(None, 0)).await.unwrap();
    let request = capacity(Some(now.revision), 20);
    let mut waits = std::pin::pin!(relay.capacity(&request));
    assert!(timeout(A_WHILE, &mut waits).await.is_err());
    let refused = relay.capacity(&capacity(None, 0)).await.unwrap_err();
    assert!(refused.to_string().contains("try again"), "{refused}");
    assert!(refused.is_retryable(), "{refused}");
    assert_eq!(hub.turned_away().clients, 1);
    hub.stop();
}

/// API-68
#[tokio::test]
async fn a_stranger_too_many_gets_503_at_once_where_others_wait_already() {
    let dir = tempfile::tempdir().unwrap();
    let caps = Caps {
        strangers: 1,
        ..Caps::default()
    };
    let hub = Hub::start_with(dir.path().join("data"), caps).await;
    let relay = hub.relay().await;
    let _one = hub.dialer().dial().await.unwrap();
    let dialer = hub.dialer();
    let mut waits = std::pin::pin!(dialer.dial());
    assert!(timeout(A_WHILE, &mut waits).await.is_err());
    let request = capacity(None, 0);
    let refused = timeout(SOON, relay.capacity(&request)).await.unwrap();
    let refused = refused.unwrap_err();
    assert!(refused.to_string().contains("try again"), "{refused}");
    assert!(refused.is_retryable(), "{refused}");
    assert_eq!(hub.turned_away().strangers, 1);
    hub.stop();
}
