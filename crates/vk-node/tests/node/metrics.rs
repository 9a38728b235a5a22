//! What operators' tools see of the daemon.

use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use vk_hub_proto::ReservationId;
use vk_hub_proto::client::Envelope;
use vk_hub_proto::dispatch::{HubJobMessage, NodeJobMessage, OfferReply};

use crate::daemon::Node;
use crate::gate::Gate;
use crate::hub::{Hub, Session};
use crate::session::{ack, end, started};

async fn get(socket: &Path, page: &str) -> String {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let request = format!("GET {page} HTTP/1.1\r\nhost: node\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
}

async fn offered(session: &mut Session, number: u8) -> OfferReply {
    let offer = HubJobMessage::Offer {
        reservation: ReservationId::from_bytes([number; 16]),
        envelope: Envelope {
            mem_mib: 4000,
            cpus: 1,
            disk_bytes: 1 << 20,
        },
        lease_secs: 60,
    };
    session.job(offer).await;
    match session.next_job().await {
        NodeJobMessage::OfferReply { reply, .. } => reply,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_show_room_jobs_refusals_boots_and_whether_the_hub_is_there() {
    let hub = Hub::new().await;
    let node = Node::joined(&hub.url);
    let socket = node.path().join("metrics");
    let file = node.path().join("config.toml");
    let mut config = std::fs::read_to_string(&file).unwrap();
    config.push_str(&format!(
        "[metrics]\nlisten = \"unix:{}\"\n",
        socket.display()
    ));
    std::fs::write(&file, config).unwrap();
    let daemon = node.start();
    let mut session = hub.welcome().await;
    assert!(matches!(
        session.next_job().await,
        NodeJobMessage::Held { .. }
    ));
    assert!(get(&socket, "/health").await.starts_with("HTTP/1.1 200 "));

    let taken = offered(&mut session, 1).await;
    assert!(matches!(taken, OfferReply::Accepted { .. }), "{taken:?}");
    let refused = offered(&mut session, 2).await;
    assert!(matches!(refused, OfferReply::Refused { .. }), "{refused:?}");
    let text = get(&socket, "/metrics").await;
    for line in [
        "vk_node_memory_budget_bytes 6442450944",
        "vk_node_memory_granted_bytes 4194304000",
        "vk_node_memory_asked_bytes 4194304000",
        "vk_node_memory_free_bytes 2248146944",
        "vk_node_reservations 1",
        "vk_node_refusals_total{of=\"offer\",reason=\"memory\"} 1",
        "vk_node_hub_connected 1",
        "vk_node_hub_sessions_total 1",
        "vk_node_state{state=\"ready\"} 1",
        "vk_node_jobs{state=\"running\"} 0",
    ] {
        has(&text, line);
    }
    let free = text
        .lines()
        .find_map(|line| line.strip_prefix("vk_node_disk_free_bytes "));
    assert!(free.is_some_and(|free| free.parse::<u64>().unwrap() > 0));

    let reservation = ReservationId::from_bytes([1; 16]);
    session.job(HubJobMessage::Release { reservation }).await;
    assert!(matches!(
        session.next_job().await,
        NodeJobMessage::Lease { .. }
    ));
    let gate = Gate::new(node.path(), "1");
    started(&mut session, 4, &["boot", "say hello", &gate.line()]).await;
    let standing = gate.reached();
    assert_eq!(session.output(0, 6).await, "hello\n");
    let text = get(&socket, "/metrics").await;
    for line in [
        "vk_node_jobs{state=\"running\"} 1",
        "vk_node_boot_seconds_count 1",
        "vk_node_boot_seconds_bucket{le=\"0.1\"} 1",
        "vk_node_cache_restores_total{result=\"miss\"} 1",
        "vk_node_output_bytes_total 6",
        "vk_node_output_sent_bytes_total 6",
    ] {
        has(&text, line);
    }
    standing.open();
    ack(&mut session, 4, 6).await;
    assert!(matches!(
        end(&mut session).await,
        NodeJobMessage::Job { .. }
    ));
    let text = get(&socket, "/metrics").await;
    has(&text, "vk_node_jobs_ended_total{result=\"success\"} 1");
    has(&text, "vk_node_jobs{state=\"finished\"} 1");

    drop(session);
    drop(hub);
    while !get(&socket, "/metrics")
        .await
        .contains("\nvk_node_hub_connected 0\n")
    {
        tokio::task::yield_now().await;
    }
    assert!(daemon.terminate().success());
}
