//! The exact bytes that are signed, spelled out part by part.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod sample;

use sample::*;
use vk_hub_proto::Incarnation;
use vk_hub_proto::node_session::VersionRange;
use vk_hub_proto::signed::*;

/// A part as the wire has it: its length in eight bytes, then itself.
fn part(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_be_bytes(), bytes].concat()
}

const RELAY: &[u8] = b"00000000000000000000000000000012";
const NODE: &[u8] = b"00000000000000000000000000000001";
const LIFE: &[u8] = b"000000000000000000000000000000aa";

fn request(channel: Channel) -> ClientRequest<'static> {
    ClientRequest {
        relay: relay(),
        method: "GET",
        path: "/v1/jobs/00000000000000000000000000000009?after=4&wait=60",
        body_sha256: &[0xe3; 32],
        time: 1_790_000_000,
        channel,
    }
}

/// AUTH-03, AUTH-14, AUTH-17
#[test]
fn a_client_request_covers_relay_method_path_body_time_and_connection() {
    let expected = [
        b"vk-fleet client-request v1\0".to_vec(),
        part(RELAY),
        part(b"GET"),
        part(b"/v1/jobs/00000000000000000000000000000009?after=4&wait=60"),
        part(&[0xe3; 32]),
        1_790_000_000_u64.to_be_bytes().to_vec(),
        part(b"tls-exporter"),
        part(&[0x5a; 32]),
    ]
    .concat();
    assert_eq!(client_request(&request(Channel::Tls([0x5a; 32]))), expected);
}

/// AUTH-15
#[test]
fn a_plain_loopback_connection_signs_its_own_word() {
    let signed = client_request(&request(Channel::Plaintext));
    assert!(signed.ends_with(&part(b"plaintext")));
    assert_eq!(EXPORTER_LABEL, b"EXPERIMENTAL-vk-fleet-node-auth");
}

/// AUTH-08
#[test]
fn any_change_of_a_request_changes_what_is_signed() {
    let channel = Channel::Tls([0x5a; 32]);
    let base = client_request(&request(channel));
    let changed = [
        ClientRequest {
            method: "PUT",
            ..request(channel)
        },
        ClientRequest {
            path: "/v1/jobs",
            ..request(channel)
        },
        ClientRequest {
            body_sha256: &[0xe4; 32],
            ..request(channel)
        },
        ClientRequest {
            time: 1_790_000_001,
            ..request(channel)
        },
        request(Channel::Tls([0x5b; 32])),
    ];
    for other in &changed {
        assert_ne!(client_request(other), base, "{other:?}");
    }
}

/// ENR-12
#[test]
fn enrolment_covers_key_and_token() {
    let key = [7; 32];
    let tail = [part(&key), part(b"secret.hash")].concat();
    let node = [b"vk-fleet enroll v1\0".to_vec(), tail.clone()].concat();
    let relay = [b"vk-fleet enroll-relay v1\0".to_vec(), tail].concat();
    assert_eq!(enroll(&key, "secret.hash"), node);
    assert_eq!(enroll_relay(&key, "secret.hash"), relay);
}

fn session<Id>(id: Id) -> Session<'static, Id> {
    Session {
        nonce: &[9; 32],
        id,
        incarnation: Incarnation::from_bytes(bytes(0xaa)),
        own: VersionRange { min: 1, max: 6 },
        hub: VersionRange { min: 1, max: 3 },
        version: 3,
        channel: Channel::Tls([0x5a; 32]),
    }
}

fn session_bytes(label: &[u8], id: &[u8]) -> Vec<u8> {
    let versions = [1_u32, 6, 1, 3, 3].map(u32::to_be_bytes).concat();
    let channel = [part(b"tls-exporter"), part(&[0x5a; 32])].concat();
    [
        label.to_vec(),
        part(&[9; 32]),
        part(id),
        part(LIFE),
        versions,
        channel,
    ]
    .concat()
}

#[test]
fn a_nodes_session_covers_nonce_node_life_versions_and_connection() {
    let expected = session_bytes(b"vk-fleet node-auth v1\0", NODE);
    assert_eq!(session_auth(&session(node())), expected);
}

/// SESS-20
#[test]
fn a_relays_session_has_a_label_of_its_own() {
    let expected = session_bytes(b"vk-fleet gitlab-auth v1\0", RELAY);
    assert_eq!(relay_session_auth(&session(relay())), expected);
}
