//! A hub with one node: what the test says, and nothing else.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;
use vk_hub_client::Stream;
use vk_hub_client::session::{Messages, Received, websocket_config};
use vk_hub_proto::ReservationId;
use vk_hub_proto::dispatch::{HubJobMessage, NodeJobMessage};
use vk_hub_proto::hex::Hex;
use vk_hub_proto::node_session::{HubMessage, Inventory, NodeMessage, RefusedCode, VersionRange};

/// Longer than any wait of a test.
const LONG: Duration = Duration::from_secs(60);

pub struct Hub {
    listener: TcpListener,
    pub url: String,
}

pub struct Session {
    messages: Messages<HubMessage, NodeMessage>,
}

impl Hub {
    pub async fn new() -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Hub { listener, url }
    }

    async fn challenged(&self) -> Session {
        let (stream, _) = timeout(LONG, self.listener.accept())
            .await
            .unwrap()
            .unwrap();
        let stream: Box<dyn Stream> = Box::new(stream);
        let config = Some(websocket_config());
        let socket = tokio_tungstenite::accept_async_with_config(stream, config)
            .await
            .unwrap();
        let mut session = Session {
            messages: Messages::new(socket),
        };
        assert!(matches!(session.any().await, NodeMessage::Hello { .. }));
        let versions = VersionRange { min: 1, max: 3 };
        session
            .say(HubMessage::Challenge {
                version: 3,
                versions,
                nonce: Hex([1; 32]),
            })
            .await;
        assert!(matches!(session.any().await, NodeMessage::Auth { .. }));
        session
    }

    /// Welcomes the node, up to its first report.
    pub async fn welcome(&self) -> Session {
        self.welcome_to(60).await
    }

    /// Welcomes the node to a session with this heartbeat.
    pub async fn welcome_to(&self, heartbeat_secs: u32) -> Session {
        self.told(heartbeat_secs).await.0
    }

    /// Welcomes the node, and what it tells of itself first.
    pub async fn welcome_with_inventory(&self) -> (Session, Inventory) {
        self.told(60).await
    }

    async fn told(&self, heartbeat_secs: u32) -> (Session, Inventory) {
        let mut session = self.challenged().await;
        session.say(HubMessage::Welcome { heartbeat_secs }).await;
        match session.any().await {
            NodeMessage::Inventory(inventory) => (session, *inventory),
            other => panic!("an inventory is due: {other:?}"),
        }
    }

    /// Welcomes the node to a session of short heartbeats; none where it breaks off.
    #[cfg(feature = "kill-points")]
    pub async fn try_welcome(&self) -> Option<Session> {
        let (stream, _) = self.listener.accept().await.ok()?;
        let stream: Box<dyn Stream> = Box::new(stream);
        let config = Some(websocket_config());
        let opening = tokio_tungstenite::accept_async_with_config(stream, config);
        let mut session = Session {
            messages: Messages::new(opening.await.ok()?),
        };
        session.try_next().await?;
        let challenge = HubMessage::Challenge {
            version: 3,
            versions: VersionRange { min: 1, max: 3 },
            nonce: Hex([1; 32]),
        };
        session.try_say(challenge).await.then_some(())?;
        session.try_next().await?;
        let welcome = HubMessage::Welcome { heartbeat_secs: 1 };
        session.try_say(welcome).await.then_some(session)
    }

    pub async fn refuse(&self, code: RefusedCode) {
        let mut session = self.challenged().await;
        let reason = "as the test wants".to_owned();
        session.say(HubMessage::Refused { code, reason }).await;
    }

    /// Whether nobody dials within this time.
    pub async fn is_left_alone(&self, within: Duration) -> bool {
        timeout(within, self.listener.accept()).await.is_err()
    }
}

impl Session {
    pub async fn say(&mut self, message: HubMessage) {
        self.messages.send(&message).await.unwrap();
    }

    /// Says it, or tells that the session broke.
    #[cfg(feature = "kill-points")]
    pub async fn try_say(&mut self, message: HubMessage) -> bool {
        self.messages.send(&message).await.is_ok()
    }

    /// The next message; none where the session broke.
    #[cfg(feature = "kill-points")]
    pub async fn try_next(&mut self) -> Option<NodeMessage> {
        loop {
            match timeout(LONG, self.messages.receive()).await.unwrap() {
                Ok(Received::Message(message)) => return Some(message),
                Ok(Received::Alive) => {}
                Err(_) => return None,
            }
        }
    }

    pub async fn job(&mut self, message: HubJobMessage) {
        self.say(HubMessage::Job(message)).await;
    }

    async fn any(&mut self) -> NodeMessage {
        loop {
            let received = timeout(LONG, self.messages.receive()).await.unwrap();
            if let Received::Message(message) = received.unwrap() {
                return message;
            }
        }
    }

    /// The next message that is no heartbeat and no inventory.
    pub async fn next(&mut self) -> NodeMessage {
        loop {
            match self.any().await {
                NodeMessage::Heartbeat(_) | NodeMessage::Inventory(_) => {}
                message => return message,
            }
        }
    }

    /// The next job message; reports are passed over.
    pub async fn next_job(&mut self) -> NodeJobMessage {
        loop {
            match self.next().await {
                NodeMessage::Job(message) => return message,
                NodeMessage::Report(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits until the node took everything said so far; a job message meanwhile is an error.
    pub async fn fence(&mut self) {
        let reservation = ReservationId::from_bytes([0xfe; 16]);
        self.job(HubJobMessage::Release { reservation }).await;
        match self.next_job().await {
            NodeJobMessage::Lease {
                reservation: of, ..
            } if of == reservation => {}
            other => panic!("{other:?}"),
        }
    }

    /// Whether the node ends the session; what it says meanwhile counts for nothing.
    pub async fn ends(&mut self) {
        while timeout(LONG, self.messages.receive())
            .await
            .unwrap()
            .is_ok()
        {}
    }

    /// Collects output messages until it has this many bytes, acking nothing.
    pub async fn output(&mut self, from: u64, len: u64) -> String {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < len {
            match self.next_job().await {
                NodeJobMessage::Output { offset, data, .. } => {
                    assert_eq!(offset, from + bytes.len() as u64);
                    bytes.extend(data.into_bytes());
                }
                NodeJobMessage::Job { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        String::from_utf8(bytes).unwrap()
    }
}
