//! A node's session: the handshake, then messages both ways.

use std::error::Error as _;
use std::time::Duration;

use aws_lc_rs::rand;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use vk_hub_client::session::{Messages, Received, SessionError, websocket_config};
use vk_hub_core::VERSIONS;
use vk_hub_proto::NodeId;
use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::hex::Hex;
use vk_hub_proto::node_session::{HubMessage, NodeMessage, RefusedCode};
use vk_hub_proto::signed::{self, Channel, Session as Signed};

use super::answer::{HttpAnswer, empty, refused};
use super::listener::{Context, Place};
use crate::members::is_signed;
use crate::store::MemberKind;

type NodeSession = Messages<HubMessage, NodeMessage>;

/// Turns the request into a session.
pub(crate) fn upgrade(
    context: Context,
    mut request: Request<Incoming>,
    channel: Channel,
    place: Place,
) -> HttpAnswer {
    let header = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let is_upgrade = header(UPGRADE).is_some_and(|value| value.eq_ignore_ascii_case("websocket"));
    let Some(key) = request
        .headers()
        .get(SEC_WEBSOCKET_KEY)
        .filter(|_| is_upgrade)
    else {
        return refused(ErrorCode::Invalid, "a session is a WebSocket");
    };
    let accept = derive_accept_key(key.as_bytes());
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(stream) = upgraded.await else { return };
        let stream: Box<dyn vk_hub_client::Stream> = Box::new(TokioIo::new(stream));
        let config = Some(websocket_config());
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, config).await;
        if let Err(error) = run(context, Messages::new(socket), channel, place).await {
            tracing::info!(%error, "a node opened no session");
        }
    });
    let mut answer = empty(StatusCode::SWITCHING_PROTOCOLS.as_u16());
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    answer
}

async fn run(
    context: Context,
    mut messages: NodeSession,
    channel: Channel,
    // Held as long as the session lasts.
    place: Place,
) -> Result<(), SessionError> {
    let (node, version) = match handshake(&context, &mut messages, channel).await {
        Ok(node) => node,
        Err(error) => {
            if let SessionError::Refused { code, reason } = &error {
                let refused = HubMessage::Refused {
                    code: *code,
                    reason: reason.clone(),
                };
                messages.send(&refused).await?;
                // The node may be gone already.
                let _ = messages.close().await;
            }
            return Err(error);
        }
    };
    place.known();
    let heartbeat_secs = u32::try_from(context.heartbeat.as_secs()).unwrap_or(5);
    messages
        .send(&HubMessage::Welcome { heartbeat_secs })
        .await?;
    tracing::info!(%node, version, "a node's session is open");
    match serve(&context, messages, node, version).await {
        Ok(()) => tracing::info!(%node, "a node's session ended"),
        Err(error) => {
            let cause = error.source().map(ToString::to_string);
            tracing::info!(%node, %error, cause, "a node's session ended");
        }
    }
    Ok(())
}

async fn handshake(
    context: &Context,
    messages: &mut NodeSession,
    channel: Channel,
) -> Result<(NodeId, u32), SessionError> {
    let NodeMessage::Hello {
        versions,
        node_id,
        incarnation,
        ..
    } = messages.step().await?
    else {
        return Err(refuse(
            RefusedCode::Protocol,
            "the first message must be a hello",
        ));
    };
    let Some(version) = versions.highest_common(VERSIONS) else {
        let why = format!(
            "this hub speaks versions {} to {}, the node {} to {}",
            VERSIONS.min, VERSIONS.max, versions.min, versions.max
        );
        return Err(refuse(RefusedCode::Version, &why));
    };
    let member = context.members.find(MemberKind::Node, node_id.as_bytes());
    let Some(member) = member else {
        let why = "this hub knows no such node, or it was removed: join again";
        return Err(refuse(RefusedCode::NotEnrolled, why));
    };
    let mut nonce = [0; 32];
    if rand::fill(&mut nonce).is_err() {
        return Err(refuse(RefusedCode::Internal, "the hub has no randomness"));
    }
    let challenge = HubMessage::Challenge {
        version,
        versions: VERSIONS,
        nonce: Hex(nonce),
    };
    messages.send(&challenge).await?;
    let NodeMessage::Auth { signature } = messages.step().await? else {
        return Err(refuse(
            RefusedCode::Protocol,
            "the answer to a challenge is an auth",
        ));
    };
    let message = signed::session_auth(&Signed {
        nonce: &nonce,
        id: node_id,
        incarnation,
        own: versions,
        hub: VERSIONS,
        version,
        channel,
    });
    if !is_signed(&member.public_key.0, &message, &signature.0) {
        return Err(refuse(
            RefusedCode::BadSignature,
            "the signature does not fit the pinned key",
        ));
    }
    Ok((node_id, version))
}

fn refuse(code: RefusedCode, reason: &str) -> SessionError {
    SessionError::Refused {
        code,
        reason: reason.to_owned(),
    }
}

/// Moves messages until either side ends the session or the node is silent for three heartbeats.
async fn serve(
    context: &Context,
    mut messages: NodeSession,
    node: NodeId,
    version: u32,
) -> Result<(), SessionError> {
    let Ok(mut session) = context.fleet.open_session(node, version).await else {
        return Ok(());
    };
    let mut ping = tokio::time::interval(context.heartbeat);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let silence = context.heartbeat * 3;
    let mut last = Instant::now();
    loop {
        tokio::select! {
            received = messages.receive() => {
                last = Instant::now();
                let told = match received? {
                    Received::Message(message) => session.message(message).await,
                    Received::Alive => session.alive().await,
                };
                if told.is_err() {
                    return Ok(());
                }
            }
            message = session.inbox.recv() => match message {
                Some(message) => within(silence, messages.send(&message)).await?,
                None => {
                    // The fleet ended it; the node reads what was sent before and redials.
                    let _ = within(silence, messages.close()).await;
                    return Ok(());
                }
            },
            _ = ping.tick() => {
                if last.elapsed() >= silence {
                    return Err(SessionError::Silent(silence));
                }
                within(silence, messages.ping()).await?;
            }
        }
    }
}

/// A node that takes nothing for so long is as good as silent: its session ends.
async fn within(
    silence: Duration,
    sent: impl Future<Output = Result<(), SessionError>>,
) -> Result<(), SessionError> {
    timeout(silence, sent)
        .await
        .map_err(|_| SessionError::Silent(silence))?
}
