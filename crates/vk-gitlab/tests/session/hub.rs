//! A hub on plain loopback, as far as one session needs it.

use std::sync::Arc;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use vk_hub_client::api::Client;
use vk_hub_client::{Dialer, Key, Signer, Trust};
use vk_hub_proto::RelayId;
use vk_hub_proto::client::{Envelope, Placement};
use vk_hub_proto::hex::Hex;
use vk_hub_proto::node_session::{RefusedCode, VersionRange};
use vk_hub_proto::relay_session::{HubRelayMessage, RelayMessage, RelayReport, ServerStatus};

use crate::SOON;

pub(crate) const RELAY: RelayId = RelayId::from_bytes([5; 16]);

pub(crate) struct Hub(TcpListener);

impl Hub {
    pub(crate) async fn start() -> Hub {
        Hub(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn client(&self) -> Arc<Client> {
        let url = format!("http://{}", self.0.local_addr().unwrap());
        let dialer = Dialer::new(url.parse().unwrap(), &Trust::Pem(Vec::new())).unwrap();
        let key = Key::generate().unwrap();
        Arc::new(Client::new(dialer, Signer { relay: RELAY, key }))
    }

    /// The next session, with so many seconds between heartbeats.
    pub(crate) async fn session(&self, heartbeat_secs: u32) -> Session {
        let (tcp, _) = timeout(SOON, self.0.accept()).await.unwrap().unwrap();
        Session::open(tcp, heartbeat_secs).await
    }
}

pub(crate) struct Session {
    socket: WebSocketStream<TcpStream>,
    pub(crate) path: String,
}

impl Session {
    /// The session for which a connection was made.
    pub(crate) async fn open(tcp: TcpStream, heartbeat_secs: u32) -> Session {
        let mut path = String::new();
        let look = |request: &Request, response: Response| {
            path = request.uri().path().to_owned();
            Ok::<_, ErrorResponse>(response)
        };
        let socket = tokio_tungstenite::accept_hdr_async(tcp, look)
            .await
            .unwrap();
        let mut session = Session { socket, path };
        let RelayMessage::Hello {
            versions, relay_id, ..
        } = session.hears().await
        else {
            panic!("a hello")
        };
        assert_eq!((versions.min, relay_id), (1, RELAY));
        let versions = VersionRange { min: 1, max: 1 };
        session
            .says(HubRelayMessage::Challenge {
                version: 1,
                versions,
                nonce: Hex([3; 32]),
            })
            .await;
        assert!(matches!(session.hears().await, RelayMessage::Auth { .. }));
        session
            .says(HubRelayMessage::Welcome { heartbeat_secs })
            .await;
        session
    }

    pub(crate) async fn says(&mut self, message: HubRelayMessage) {
        let json = serde_json::to_string(&message).unwrap();
        self.says_text(&json).await;
    }

    pub(crate) async fn says_text(&mut self, json: &str) {
        self.socket.send(Message::text(json)).await.unwrap();
    }

    /// Gives a sign of life.
    pub(crate) async fn pings(&mut self) {
        let ping = Message::Ping(Vec::new().into());
        self.socket.send(ping).await.unwrap();
    }

    /// Waits for that sign's answer; what else is heard on the way is lost.
    #[allow(dead_code, reason = "sessions that last (tests/soak) wait for none")]
    pub(crate) async fn pong(&mut self) {
        let answered = async {
            loop {
                let heard = self.socket.next().await.unwrap();
                if let Message::Pong(_) = heard.unwrap() {
                    return;
                }
            }
        };
        timeout(SOON, answered).await.unwrap();
    }

    pub(crate) async fn says_status(&mut self, status: ServerStatus) {
        let message = Some("why".to_owned());
        self.says(HubRelayMessage::Server { status, message }).await;
    }

    pub(crate) async fn refuses(&mut self, code: RefusedCode) {
        let reason = "refused by the test".to_owned();
        self.says(HubRelayMessage::Refused { code, reason }).await;
    }

    /// The next message.
    pub(crate) async fn hears(&mut self) -> RelayMessage {
        let heard = timeout(SOON, self.heard()).await;
        heard.unwrap().unwrap()
    }

    /// The next message, whenever it comes; none at the session's end.
    pub(crate) async fn heard(&mut self) -> Option<RelayMessage> {
        loop {
            if let Message::Text(text) = self.socket.next().await?.ok()? {
                return Some(serde_json::from_str(&text).unwrap());
            }
        }
    }

    /// The next report.
    pub(crate) async fn report(&mut self) -> RelayReport {
        loop {
            if let RelayMessage::Report(report) = self.hears().await {
                return *report;
            }
        }
    }
}

pub(crate) fn placement() -> Placement {
    let envelope = Envelope {
        mem_mib: 2048,
        cpus: 2,
        disk_bytes: 1 << 30,
    };
    Placement {
        pool: vk_hub_proto::Name::default(),
        labels: vec![],
        envelope,
    }
}
