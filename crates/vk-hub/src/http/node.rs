//! A node's session: the handshake, then messages both ways.

use std::error::Error as _;

use aws_lc_rs::rand;
use hyper::Request;
use hyper::body::Incoming;
use tokio::time::{Instant, MissedTickBehavior};
use vk_hub_client::session::{Messages, Received, SessionError};
use vk_hub_core::VERSIONS;
use vk_hub_proto::NodeId;
use vk_hub_proto::hex::Hex;
use vk_hub_proto::node_session::{HubMessage, NodeMessage, RefusedCode};
use vk_hub_proto::signed::{self, Channel, Session as Signed};

use super::answer::HttpAnswer;
use super::heard::Heard;
use super::listener::Context;
use super::seats::Place;
use super::websocket::{refuse, websocket, within};
use crate::members::is_signed;
use crate::store::MemberKind;

type NodeSession = Messages<HubMessage, NodeMessage>;

/// Turns the request into a session.
pub(crate) fn upgrade(
    context: Context,
    request: Request<Incoming>,
    channel: Channel,
    place: Place,
) -> HttpAnswer {
    websocket(request, async move |socket, heard| {
        let messages = Messages::new(socket);
        if let Err(error) = run(context, (messages, heard), channel, place).await {
            tracing::info!(%error, "a node opened no session");
        }
    })
}

async fn run(
    context: Context,
    (mut messages, heard): (NodeSession, Heard),
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
    match serve(&context, (messages, heard), node, version).await {
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

/// Moves messages until either side ends the session or the node is silent for three heartbeats.
async fn serve(
    context: &Context,
    (mut messages, heard): (NodeSession, Heard),
    node: NodeId,
    version: u32,
) -> Result<(), SessionError> {
    let Ok(mut session) = context.fleet.open_session(node, version).await else {
        return Ok(());
    };
    let mut ping = tokio::time::interval(context.heartbeat);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let silence = context.heartbeat * 3;
    let mut told = Instant::now();
    loop {
        tokio::select! {
            received = messages.receive() => {
                told = Instant::now();
                let taken = match received? {
                    Received::Message(message) => session.message(message).await,
                    Received::Alive => session.alive().await,
                };
                if taken.is_err() {
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
                let last = heard.last();
                if last.elapsed() >= silence {
                    return Err(SessionError::Silent(silence));
                }
                // Part of a message that is long in coming.
                if last > told {
                    told = last;
                    if session.alive().await.is_err() {
                        return Ok(());
                    }
                }
                within(silence, messages.ping()).await?;
            }
        }
    }
}
