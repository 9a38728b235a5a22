//! The opening of a session, and its messages once it is open.

use std::marker::PhantomData;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use hyper::http::Request;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use vk_hub_proto::limit;
use vk_hub_proto::node_session::{HubMessage, NodeMessage, RefusedCode, VersionRange};
use vk_hub_proto::relay_session::{HubRelayMessage, RelayMessage};
use vk_hub_proto::signed::{self, Channel, Session as Signed};
use vk_hub_proto::{Incarnation, NodeId, RelayId};

use crate::connect::{ConnectError, Connection, Dialer, Stream};
use crate::key::Key;

/// How long each step of the opening may take.
const STEP: Duration = Duration::from_secs(10);

/// A session that did not come about or broke.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The WebSocket failed.
    #[error("the session broke")]
    Broken(#[source] Box<WsError>),
    /// The other side closed it.
    #[error("the other side closed the session")]
    Closed,
    /// The hub refused (SESS-21).
    #[error("the hub refused the session ({code:?}): {reason}")]
    Refused {
        /// For the program; see [`RefusedCode::is_for_good`].
        code: RefusedCode,
        /// For people.
        reason: String,
    },
    /// The other side did not keep to the protocol.
    #[error("the other side broke the protocol: {0}")]
    Protocol(String),
    /// Nothing came from the other side, or it took nothing, for this long.
    #[error("the other side was silent for {} s", .0.as_secs())]
    Silent(Duration),
    /// A step of the opening took too long.
    #[error("a step of the session's opening took more than {} s", STEP.as_secs())]
    TooSlow,
}

impl SessionError {
    /// Whether dialling again is pointless.
    #[must_use]
    pub const fn is_for_good(&self) -> bool {
        matches!(self, SessionError::Refused { code, .. } if code.is_for_good())
    }
}

impl From<WsError> for SessionError {
    fn from(error: WsError) -> SessionError {
        match error {
            WsError::ConnectionClosed | WsError::AlreadyClosed => SessionError::Closed,
            other => SessionError::Broken(Box::new(other)),
        }
    }
}

/// The settings of every WebSocket between our programs: 1 MiB a message (DISP-03).
#[must_use]
pub fn websocket_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(limit::MESSAGE_BYTES))
        .max_frame_size(Some(limit::MESSAGE_BYTES))
}

/// A WebSocket that carries one JSON message a text frame.
pub struct Messages<Out, In> {
    socket: WebSocketStream<Box<dyn Stream>>,
    kinds: PhantomData<fn(Out) -> In>,
}

/// What was received.
#[derive(Clone, Debug, PartialEq)]
pub enum Received<In> {
    /// A message.
    Message(In),
    /// A ping or pong: only a sign of life.
    Alive,
}

impl<Out: Serialize, In: DeserializeOwned> Messages<Out, In> {
    /// Takes a WebSocket over.
    #[must_use]
    pub const fn new(socket: WebSocketStream<Box<dyn Stream>>) -> Self {
        Messages {
            socket,
            kinds: PhantomData,
        }
    }

    /// Sends one message.
    ///
    /// # Errors
    /// The session broke, or the message is larger than a session may carry.
    pub async fn send(&mut self, message: &Out) -> Result<(), SessionError> {
        let json = serde_json::to_string(message)
            .map_err(|why| SessionError::Protocol(why.to_string()))?;
        if json.len() > limit::MESSAGE_BYTES {
            let why = format!("a message of {} bytes was to be sent", json.len());
            return Err(SessionError::Protocol(why));
        }
        Ok(self.socket.send(Message::text(json)).await?)
    }

    /// Sends a ping.
    ///
    /// # Errors
    /// The session broke.
    pub async fn ping(&mut self) -> Result<(), SessionError> {
        Ok(self.socket.send(Message::Ping(Vec::new().into())).await?)
    }

    /// Receives the next message or sign of life. May be dropped and called again: nothing is lost.
    ///
    /// # Errors
    /// The session broke or was closed, or a message does not parse.
    pub async fn receive(&mut self) -> Result<Received<In>, SessionError> {
        match self.socket.next().await {
            None => Err(SessionError::Closed),
            Some(Err(error)) => Err(error.into()),
            Some(Ok(Message::Text(text))) => serde_json::from_str(&text)
                .map(Received::Message)
                .map_err(|why| SessionError::Protocol(format!("a message does not parse: {why}"))),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(Received::Alive),
            Some(Ok(Message::Close(_))) => Err(SessionError::Closed),
            Some(Ok(Message::Binary(_) | Message::Frame(_))) => Err(SessionError::Protocol(
                "a frame that is not text".to_owned(),
            )),
        }
    }

    /// Closes the session in good order.
    ///
    /// # Errors
    /// The session was broken already.
    pub async fn close(&mut self) -> Result<(), SessionError> {
        Ok(self.socket.close(None).await?)
    }

    /// The next message of a session's opening, within 10 s however many signs of life come.
    ///
    /// # Errors
    /// It did not come in time, or see [`Messages::receive`].
    pub async fn step(&mut self) -> Result<In, SessionError> {
        let message = async {
            loop {
                if let Received::Message(message) = self.receive().await? {
                    return Ok(message);
                }
            }
        };
        timeout(STEP, message)
            .await
            .map_err(|_| SessionError::TooSlow)?
    }
}

/// An open session.
pub struct Opened<Out, In> {
    /// Its messages.
    pub messages: Messages<Out, In>,
    /// The version both sides speak.
    pub version: u32,
    /// How often to give a sign of life: 1 to 300 s.
    pub heartbeat: Duration,
}

/// Who opens a session.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a, Id> {
    /// Its ID.
    pub id: Id,
    /// This life of it.
    pub incarnation: Incarnation,
    /// Its key.
    pub key: &'a Key,
    /// What it speaks.
    pub versions: VersionRange,
    /// Its program's version.
    pub program: &'a str,
}

/// Opens a node's session at `/v1/node`.
///
/// # Errors
/// See [`SessionError`].
pub async fn open_node(
    dialer: &Dialer,
    who: &Opening<'_, NodeId>,
) -> Result<Opened<NodeMessage, HubMessage>, SessionError> {
    let (mut messages, channel) = dial(dialer, "/v1/node").await?;
    let hello = NodeMessage::Hello {
        versions: who.versions,
        node_id: who.id,
        incarnation: who.incarnation,
        vk_version: who.program.to_owned(),
    };
    messages.send(&hello).await?;
    let (version, hub, nonce) = match messages.step().await? {
        HubMessage::Challenge {
            version,
            versions,
            nonce,
        } => (version, versions, nonce.0),
        HubMessage::Refused { code, reason } => return Err(SessionError::Refused { code, reason }),
        _ => return Err(unexpected("challenge")),
    };
    let message = signed::session_auth(&signed_by(who, &nonce, hub, version, channel)?);
    messages
        .send(&NodeMessage::Auth {
            signature: who.key.sign(&message),
        })
        .await?;
    match messages.step().await? {
        HubMessage::Welcome { heartbeat_secs } => Ok(Opened {
            messages,
            version,
            heartbeat: heartbeat(heartbeat_secs),
        }),
        HubMessage::Refused { code, reason } => Err(SessionError::Refused { code, reason }),
        _ => Err(unexpected("welcome")),
    }
}

/// Opens a relay's session at `/v1/gitlab/session` (SESS-01).
///
/// # Errors
/// See [`SessionError`].
pub async fn open_relay(
    dialer: &Dialer,
    who: &Opening<'_, RelayId>,
) -> Result<Opened<RelayMessage, HubRelayMessage>, SessionError> {
    let (mut messages, channel) = dial(dialer, "/v1/gitlab/session").await?;
    let hello = RelayMessage::Hello {
        versions: who.versions,
        relay_id: who.id,
        incarnation: who.incarnation,
        version: who.program.to_owned(),
    };
    messages.send(&hello).await?;
    let (version, hub, nonce) = match messages.step().await? {
        HubRelayMessage::Challenge {
            version,
            versions,
            nonce,
        } => (version, versions, nonce.0),
        HubRelayMessage::Refused { code, reason } => {
            return Err(SessionError::Refused { code, reason });
        }
        _ => return Err(unexpected("challenge")),
    };
    let message = signed::relay_session_auth(&signed_by(who, &nonce, hub, version, channel)?);
    messages
        .send(&RelayMessage::Auth {
            signature: who.key.sign(&message),
        })
        .await?;
    match messages.step().await? {
        HubRelayMessage::Welcome { heartbeat_secs } => Ok(Opened {
            messages,
            version,
            heartbeat: heartbeat(heartbeat_secs),
        }),
        HubRelayMessage::Refused { code, reason } => Err(SessionError::Refused { code, reason }),
        _ => Err(unexpected("welcome")),
    }
}

/// What is to be signed, once the chosen version is the highest both speak.
fn signed_by<'a, Id: Copy>(
    who: &Opening<'_, Id>,
    nonce: &'a [u8; 32],
    hub: VersionRange,
    version: u32,
    channel: Channel,
) -> Result<Signed<'a, Id>, SessionError> {
    if who.versions.highest_common(hub) != Some(version) {
        let why = format!(
            "it chose version {version}, we speak {} to {}, it speaks {} to {}",
            who.versions.min, who.versions.max, hub.min, hub.max
        );
        return Err(SessionError::Protocol(why));
    }
    let incarnation = who.incarnation;
    Ok(Signed {
        nonce,
        id: who.id,
        incarnation,
        own: who.versions,
        hub,
        version,
        channel,
    })
}

fn heartbeat(secs: u32) -> Duration {
    Duration::from_secs(secs.clamp(1, 300).into())
}

fn unexpected(awaited: &str) -> SessionError {
    SessionError::Protocol(format!("another message came where {awaited} was due"))
}

async fn dial<Out: Serialize, In: DeserializeOwned>(
    dialer: &Dialer,
    path: &str,
) -> Result<(Messages<Out, In>, Channel), SessionError> {
    let Connection { stream, channel } = dialer.dial().await?;
    let request = Request::builder()
        .uri(format!("ws://{}{path}", dialer.url().authority()))
        .header("host", dialer.url().authority())
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header(
            "sec-websocket-key",
            tokio_tungstenite::tungstenite::handshake::client::generate_key(),
        )
        .body(())
        .map_err(|why| SessionError::Protocol(why.to_string()))?;
    let config = Some(websocket_config());
    let opening = tokio_tungstenite::client_async_with_config(request, stream, config);
    let (socket, _) = timeout(STEP, opening)
        .await
        .map_err(|_| SessionError::TooSlow)??;
    Ok((Messages::new(socket), channel))
}
