//! What goes over a node's session, and what comes.

use vk_hub_core::{Effect, FromNode};
use vk_hub_proto::client::CancelMode;
use vk_hub_proto::dispatch::{Chunk, HubJobMessage, NodeJobMessage};
use vk_hub_proto::node_session::{HubMessage, NodeMessage, RefusedCode};

use crate::bench::{
    Bench, ENVELOPE, ack, give_back, job, offer, recorded, reservation, spec, start, stop,
};

#[test]
fn each_session_effect_is_its_message() {
    let (_, session) = Bench::with_node(1);
    let id = reservation(7);
    let cases = [
        (
            offer(session, id),
            HubJobMessage::Offer {
                reservation: id,
                envelope: ENVELOPE,
                lease_secs: 90,
            },
        ),
        (
            Effect::Renew {
                session,
                reservation: id,
                lease_secs: 60,
            },
            HubJobMessage::Renew {
                reservation: id,
                lease_secs: 60,
            },
        ),
        (
            give_back(session, id),
            HubJobMessage::Release { reservation: id },
        ),
        (
            start(session, 1, Some(id)),
            HubJobMessage::Start {
                job: job(1),
                reservation: Some(id),
                envelope: ENVELOPE,
                spec: spec(1),
                registry: None,
            },
        ),
        (
            ack(session, 1, 9),
            HubJobMessage::OutputAck {
                job: job(1),
                offset: 9,
            },
        ),
        (
            stop(session, 1, CancelMode::Graceful),
            HubJobMessage::Cancel {
                job: job(1),
                mode: CancelMode::Graceful,
            },
        ),
        (
            recorded(session, 1),
            HubJobMessage::Recorded { job: job(1) },
        ),
    ];
    for (effect, message) in cases {
        assert_eq!(effect.message(), Some((session, HubMessage::Job(message))));
    }
    let close = Effect::Close {
        session,
        code: RefusedCode::Protocol,
        reason: "why".to_owned(),
    };
    let refused = HubMessage::Refused {
        code: RefusedCode::Protocol,
        reason: "why".to_owned(),
    };
    assert_eq!(close.message(), Some((session, refused)));
    assert_eq!(Effect::DropOutput { job: job(1) }.message(), None);
}

#[test]
fn the_bytes_of_output_stay_outside() {
    let data = Chunk::try_from(b"hello".to_vec()).unwrap();
    let message = NodeMessage::Job(NodeJobMessage::Output {
        job: job(1),
        offset: 3,
        data: data.clone(),
    });
    let expected = FromNode::Output {
        job: job(1),
        offset: 3,
        len: 5,
    };
    assert_eq!(FromNode::read(message), Some((expected, Some(data))));
    assert_eq!(FromNode::read(NodeMessage::Other), None);
    let unknown = NodeMessage::Job(NodeJobMessage::Other);
    assert_eq!(FromNode::read(unknown), None);
}
