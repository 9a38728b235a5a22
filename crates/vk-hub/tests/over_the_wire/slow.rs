//! Messages that are long in coming.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use vk_hub_proto::JobId;
use vk_hub_proto::dispatch::NodeJobMessage;

use crate::hub::*;

/// The hub's heartbeat: three of them without a word end a session.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// What comes through at a time, and how often.
const TRICKLE: (usize, Duration) = (4096, Duration::from_millis(170));
/// Bytes that pass at once, as a session's opening needs.
const AT_ONCE: usize = 16 << 10;

/// A way to the hub that is slow upwards.
async fn slow_way(to: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (node, _) = listener.accept().await.unwrap();
        let hub = TcpStream::connect(to).await.unwrap();
        let ((mut up, mut down), (mut from_hub, mut to_hub)) =
            (node.into_split(), hub.into_split());
        tokio::spawn(async move { tokio::io::copy(&mut from_hub, &mut down).await });
        let (mut buffer, mut passed) = (vec![0; TRICKLE.0], 0);
        while let Ok(len @ 1..) = up.read(&mut buffer).await {
            if to_hub.write_all(&buffer[..len]).await.is_err() {
                return;
            }
            passed += len;
            if passed > AT_ONCE {
                tokio::time::sleep(TRICKLE.1).await;
            }
        }
    });
    port
}

#[tokio::test]
async fn every_byte_is_a_sign_of_life_also_of_a_message_that_takes_longer_than_the_patience() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start_beating(dir.path().join("data"), HEARTBEAT).await;
    let (id, key) = hub.node().await;
    let authority = hub.url.authority().to_owned();
    let port = slow_way(authority).await;
    let url = format!("https://127.0.0.1:{port}").parse().unwrap();
    let mut node = Hub::session_by(&hub.dialer_at(&url), id, &key)
        .await
        .unwrap();
    // About 130 KB of JSON: more than five seconds on the way, and no pong in between.
    let data = vec![b'x'; 96 << 10].try_into().unwrap();
    let job = JobId::from_bytes([9; 16]);
    let begun = std::time::Instant::now();
    node.job(NodeJobMessage::Output {
        job,
        offset: 0,
        data,
    })
    .await;
    node.ready(vec![]).await;
    // What comes behind it is answered, so the session lives.
    let relay = hub.relay().await;
    let room = tokio::time::timeout(SOON, async {
        loop {
            if relay.capacity(&room()).await.unwrap().fits > 0 {
                return;
            }
        }
    });
    room.await.unwrap();
    assert!(begun.elapsed() > HEARTBEAT * 4, "{:?}", begun.elapsed());
    hub.stop();
}

/// Silence ends a session all the same.
#[tokio::test]
async fn a_node_that_sends_nothing_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start_beating(dir.path().join("data"), HEARTBEAT).await;
    let (id, key) = hub.node().await;
    let mut node = hub.session(id, &key).await;
    node.ready(vec![]).await;
    // Nobody reads, so no ping is answered.
    tokio::time::sleep(HEARTBEAT * 6).await;
    let ended = tokio::time::timeout(SOON, async {
        while node.0.messages.receive().await.is_ok() {}
    });
    ended.await.unwrap();
    hub.stop();
}

fn room() -> vk_hub_proto::client::CapacityRequest {
    vk_hub_proto::client::CapacityRequest {
        placement: placement(),
        after: None,
        wait_secs: 0,
    }
}
