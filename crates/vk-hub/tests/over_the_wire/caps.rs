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
async fn a_session_keeps_its_connections_place() {
    let dir = tempfile::tempdir().unwrap();
    let caps = Caps {
        connections: 1,
        ..Caps::default()
    };
    let hub = Hub::start_with(dir.path().join("data"), caps).await;
    let (id, key) = hub.node().await;
    let node = loop {
        // The enrolment's connection may take a moment to be gone.
        if let Ok(node) = hub.try_session(id, &key).await {
            break node;
        }
    };
    assert!(hub.dialer().dial().await.is_err(), "the place is taken");
    drop(node);
    hub.stop();
}
