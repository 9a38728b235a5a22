//! The hub's way in: enrolment and the session beside the client API.

use std::sync::Arc;

use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use vk_hub_proto::relay_session::{RelayMessage, ServerStatus};

use crate::hub::{Hub, answer};
use crate::server::{Reply, Seen, converse};
use crate::session_hub::{RELAY, Session};

/// How a request for the session begins.
const SESSION: &[u8] = b"GET /v1/gitlab/session ";
/// Seconds between a session's heartbeats.
const HEARTBEAT: u32 = 5;

/// Lets daemons in, until the runtime ends; on which port.
pub(crate) async fn open(hub: Hub) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            tokio::spawn(one(Arc::clone(&hub), tcp));
        }
    });
    port
}

async fn one(hub: Hub, tcp: TcpStream) {
    let mut start = [0; SESSION.len()];
    // A client may go without a word, or before its request is whole.
    while let Ok(read) = tcp.peek(&mut start).await
        && read > 0
    {
        if !SESSION.starts_with(&start[..read]) {
            return converse(tcp, move |seen| request(Arc::clone(&hub), seen)).await;
        }
        if read == SESSION.len() {
            return hold(Session::open(tcp, HEARTBEAT).await).await;
        }
        tokio::task::yield_now().await;
    }
}

async fn request(hub: Hub, seen: Seen) -> Reply {
    match seen.path.as_str() {
        "/v1/gitlab/enroll" => Reply::json(200, &json!({ "relay_id": RELAY.to_string() })),
        _ => answer(hub, seen).await,
    }
}

/// Approves whatever GitLab server is reported, and says it again as a sign of life.
async fn hold(mut session: Session) {
    while let Some(message) = session.heard().await {
        match message {
            RelayMessage::Report(_) => session.says_status(ServerStatus::Approved).await,
            _ => session.pings().await,
        }
    }
}
