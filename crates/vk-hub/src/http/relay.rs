//! A relay's session at `/v1/gitlab/session`, of the kind nodes hold (SESS-01, SESS-16).

use std::error::Error as _;

use aws_lc_rs::rand;
use hyper::Request;
use hyper::body::Incoming;
use tokio::time::{MissedTickBehavior, timeout};
use vk_hub_client::session::{Messages, Received, SessionError};
use vk_hub_core::{FromRelay, RELAY_VERSIONS};
use vk_hub_proto::RelayId;
use vk_hub_proto::hex::Hex;
use vk_hub_proto::node_session::RefusedCode;
use vk_hub_proto::relay_session::{HubRelayMessage, RelayMessage};
use vk_hub_proto::signed::{self, Channel, Session as Signed};

use super::answer::HttpAnswer;
use super::heard::Heard;
use super::listener::Context;
use super::seats::Place;
use super::websocket::{refuse, websocket, within};
use crate::members::is_signed;
use crate::store::MemberKind;

type Relay = Messages<HubRelayMessage, RelayMessage>;

/// Messages of a relay's that are read in a heartbeat: many more than one that is in order sends.
const MESSAGES: u32 = 256;

/// Turns the request into a session.
pub(crate) fn upgrade(
    context: Context,
    request: Request<Incoming>,
    channel: Channel,
    place: Place,
) -> HttpAnswer {
    websocket(request, async move |socket, heard| {
        let mut messages = Messages::new(socket);
        if let Err(error) = run(&context, (&mut messages, heard), channel, place).await {
            if let SessionError::Refused { code, reason } = &error {
                let (code, reason) = (*code, reason.clone());
                // The relay may be gone already, or take nothing.
                let goodbye = async {
                    messages
                        .send(&HubRelayMessage::Refused { code, reason })
                        .await?;
                    messages.close().await
                };
                let _ = timeout(context.heartbeat, goodbye).await;
            }
            let cause = error.source().map(ToString::to_string);
            tracing::info!(%error, cause, "a relay's session ended");
        }
    })
}

async fn run(
    context: &Context,
    (messages, heard): (&mut Relay, Heard),
    channel: Channel,
    // Held as long as the session lasts.
    place: Place,
) -> Result<(), SessionError> {
    let relay = handshake(context, messages, channel).await?;
    place.known();
    let heartbeat_secs = u32::try_from(context.heartbeat.as_secs()).unwrap_or(5);
    messages
        .send(&HubRelayMessage::Welcome { heartbeat_secs })
        .await?;
    tracing::info!(%relay, "a relay's session is open");
    serve(context, (messages, heard), relay).await
}

async fn handshake(
    context: &Context,
    messages: &mut Relay,
    channel: Channel,
) -> Result<RelayId, SessionError> {
    let RelayMessage::Hello {
        versions,
        relay_id,
        incarnation,
        ..
    } = messages.step().await?
    else {
        let why = "the first message must be a hello";
        return Err(refuse(RefusedCode::Protocol, why));
    };
    let Some(version) = versions.highest_common(RELAY_VERSIONS) else {
        let why = format!(
            "this hub speaks versions {} to {}, the relay {} to {}",
            RELAY_VERSIONS.min, RELAY_VERSIONS.max, versions.min, versions.max
        );
        return Err(refuse(RefusedCode::Version, &why));
    };
    let member = context
        .members
        .find(MemberKind::GitLab, relay_id.as_bytes());
    let Some(member) = member else {
        let why = "this hub knows no such relay, or it was removed: join again";
        return Err(refuse(RefusedCode::NotEnrolled, why));
    };
    let mut nonce = [0; 32];
    if rand::fill(&mut nonce).is_err() {
        return Err(refuse(RefusedCode::Internal, "the hub has no randomness"));
    }
    let challenge = HubRelayMessage::Challenge {
        version,
        versions: RELAY_VERSIONS,
        nonce: Hex(nonce),
    };
    messages.send(&challenge).await?;
    let RelayMessage::Auth { signature } = messages.step().await? else {
        let why = "the answer to a challenge is an auth";
        return Err(refuse(RefusedCode::Protocol, why));
    };
    let message = signed::relay_session_auth(&Signed {
        nonce: &nonce,
        id: relay_id,
        incarnation,
        own: versions,
        hub: RELAY_VERSIONS,
        version,
        channel,
    });
    if !is_signed(&member.public_key.0, &message, &signature.0) {
        let why = "the signature does not fit the pinned key";
        return Err(refuse(RefusedCode::BadSignature, why));
    }
    Ok(relay_id)
}

/// Moves messages until either side ends the session or the relay is silent for three heartbeats.
async fn serve(
    context: &Context,
    (messages, heard): (&mut Relay, Heard),
    relay: RelayId,
) -> Result<(), SessionError> {
    let Ok(mut session) = context.fleet.open_relay_session(relay).await else {
        return Ok(());
    };
    // One that was removed between its handshake and here was not closed by that.
    let enrolled = context.members.find(MemberKind::GitLab, relay.as_bytes());
    if enrolled.is_none() {
        let why = "an operator removed this relay";
        return Err(refuse(RefusedCode::Revoked, why));
    }
    let mut left = MESSAGES;
    let mut ping = tokio::time::interval(context.heartbeat);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let silence = context.heartbeat * 3;
    loop {
        tokio::select! {
            // One that says too much is read no faster than this.
            received = messages.receive(), if left > 0 => {
                left -= 1;
                let Received::Message(message) = received? else { continue };
                let Some(message) = read(message)? else { continue };
                if session.message(message).await.is_err() {
                    return Ok(());
                }
            }
            message = session.inbox.recv() => match message {
                Some(message) => within(silence, messages.send(&message)).await?,
                None => {
                    // The fleet ended it; the relay reads what was sent before.
                    let _ = within(silence, messages.close()).await;
                    return Ok(());
                }
            },
            _ = ping.tick() => {
                left = MESSAGES;
                if heard.last().elapsed() >= silence {
                    return Err(SessionError::Silent(silence));
                }
                within(silence, messages.ping()).await?;
            }
        }
    }
}

/// What the fleet is told of a message; a handshake's is none of an open session's.
fn read(message: RelayMessage) -> Result<Option<FromRelay>, SessionError> {
    if matches!(
        message,
        RelayMessage::Hello { .. } | RelayMessage::Auth { .. }
    ) {
        let why = "a handshake's message came in an open session";
        return Err(refuse(RefusedCode::Protocol, why));
    }
    FromRelay::read(message).map_err(|why| refuse(RefusedCode::Protocol, why))
}
