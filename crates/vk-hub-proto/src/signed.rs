//! The exact bytes that are signed. Nothing here signs: the caller has the key and the TLS exporter.

use crate::node_session::VersionRange;
use crate::{Incarnation, NodeId, RelayId};

/// Label under which the TLS exporter is derived, with an empty context, 32 bytes (AUTH-15).
pub const EXPORTER_LABEL: &[u8] = b"EXPERIMENTAL-vk-fleet-node-auth";

/// The connection a signature is good on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// TLS 1.3, by its exporter.
    Tls([u8; 32]),
    /// A plain connection over loopback: the test bench's exception.
    Plaintext,
}

/// What a client request signs (AUTH-14).
#[derive(Clone, Copy, Debug)]
pub struct ClientRequest<'a> {
    /// Who asks.
    pub relay: RelayId,
    /// The method in capitals.
    pub method: &'a str,
    /// Path and query exactly as on the request line (AUTH-17).
    pub path: &'a str,
    /// SHA-256 of the body.
    pub body_sha256: &'a [u8; 32],
    /// Unix seconds, as `vk-time` has them.
    pub time: u64,
    /// The connection.
    pub channel: Channel,
}

/// What a session's opening signs.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a, Id> {
    /// The hub's nonce.
    pub nonce: &'a [u8; 32],
    /// Who dials.
    pub id: Id,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// What the dialling side speaks.
    pub own: VersionRange,
    /// What the hub speaks.
    pub hub: VersionRange,
    /// The version chosen.
    pub version: u32,
    /// The connection.
    pub channel: Channel,
}

struct Message(Vec<u8>);

impl Message {
    fn new(label: &str) -> Message {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(label.as_bytes());
        bytes.push(0);
        Message(bytes)
    }

    fn part(mut self, bytes: &[u8]) -> Message {
        self.0
            .extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    fn u32(mut self, number: u32) -> Message {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Message {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn channel(self, channel: Channel) -> Vec<u8> {
        match channel {
            Channel::Tls(exporter) => self.part(b"tls-exporter").part(&exporter).0,
            Channel::Plaintext => self.part(b"plaintext").0,
        }
    }
}

/// The bytes of a client request (AUTH-03, AUTH-14).
#[must_use]
pub fn client_request(request: &ClientRequest<'_>) -> Vec<u8> {
    Message::new("vk-fleet client-request v1")
        .part(request.relay.to_string().as_bytes())
        .part(request.method.as_bytes())
        .part(request.path.as_bytes())
        .part(request.body_sha256)
        .u64(request.time)
        .channel(request.channel)
}

/// The bytes of a node's enrolment.
#[must_use]
pub fn enroll(public_key: &[u8; 32], token: &str) -> Vec<u8> {
    Message::new("vk-fleet enroll v1")
        .part(public_key)
        .part(token.as_bytes())
        .0
}

/// The bytes of a relay's enrolment (ENR-12).
#[must_use]
pub fn enroll_relay(public_key: &[u8; 32], token: &str) -> Vec<u8> {
    Message::new("vk-fleet enroll-relay v1")
        .part(public_key)
        .part(token.as_bytes())
        .0
}

/// The bytes of a node's session.
#[must_use]
pub fn session_auth(session: &Session<'_, NodeId>) -> Vec<u8> {
    session_message("vk-fleet node-auth v1", session, &session.id.to_string())
}

/// The bytes of a relay's session (SESS-20).
#[must_use]
pub fn relay_session_auth(session: &Session<'_, RelayId>) -> Vec<u8> {
    session_message("vk-fleet gitlab-auth v1", session, &session.id.to_string())
}

fn session_message<Id>(label: &str, session: &Session<'_, Id>, id: &str) -> Vec<u8> {
    Message::new(label)
        .part(session.nonce)
        .part(id.as_bytes())
        .part(session.incarnation.to_string().as_bytes())
        .u32(session.own.min)
        .u32(session.own.max)
        .u32(session.hub.min)
        .u32(session.hub.max)
        .u32(session.version)
        .channel(session.channel)
}
