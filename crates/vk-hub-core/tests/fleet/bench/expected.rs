//! What tests expect: effects in few words, answers taken apart.

use std::sync::Arc;

use vk_hub_core::{Answer, Effect, Refusal, RequestHandle, SessionHandle};
use vk_hub_proto::ReservationId;
use vk_hub_proto::client::{CancelMode, ErrorCode};
use vk_hub_proto::node_session::RefusedCode;
use vk_hub_proto::relay_session::ServerStatus;

use super::sample::{ENVELOPE, job, spec};

/// The answer a handle got among these effects.
pub(crate) fn answer(effects: &[Effect], handle: RequestHandle) -> Option<Answer> {
    let mut answers = effects.iter().filter_map(|effect| match effect {
        Effect::Answer { to, answer } if *to == handle => Some(answer.clone()),
        _ => None,
    });
    let first = answers.next();
    assert!(answers.next().is_none(), "answered twice");
    first
}

pub(crate) fn code(answer: &Answer) -> (u16, ErrorCode) {
    let Answer::Refused(Refusal { status, error }) = answer else {
        panic!("not refused: {answer:?}");
    };
    assert_eq!(
        error.retry_after_secs.is_some(),
        error.code.is_retryable(),
        "ERR-28"
    );
    (*status, error.code)
}

/// How a relay's server stands, as its session is told among these effects.
pub(crate) fn server_status(effects: &[Effect], of: SessionHandle) -> Option<ServerStatus> {
    effects.iter().find_map(|effect| match effect {
        Effect::Server {
            session, status, ..
        } if *session == of => Some(*status),
        _ => None,
    })
}

/// Why a relay's session is closed among these effects.
pub(crate) fn relay_closed(effects: &[Effect], of: SessionHandle) -> Option<RefusedCode> {
    effects.iter().find_map(|effect| match effect {
        Effect::CloseRelay { session, code, .. } if *session == of => Some(*code),
        _ => None,
    })
}

pub(crate) fn start(session: SessionHandle, n: u8, on: Option<ReservationId>) -> Effect {
    Effect::Start {
        session,
        job: job(n),
        reservation: on,
        envelope: ENVELOPE,
        spec: Arc::new(spec(n)),
        token: None,
    }
}

pub(crate) fn offer(session: SessionHandle, id: ReservationId) -> Effect {
    Effect::Offer {
        session,
        reservation: id,
        envelope: ENVELOPE,
        lease_secs: 90,
    }
}

pub(crate) fn ack(session: SessionHandle, n: u8, offset: u64) -> Effect {
    Effect::OutputAck {
        session,
        job: job(n),
        offset,
    }
}

pub(crate) fn recorded(session: SessionHandle, n: u8) -> Effect {
    Effect::Recorded {
        session,
        job: job(n),
    }
}

pub(crate) fn stop(session: SessionHandle, n: u8, mode: CancelMode) -> Effect {
    Effect::Cancel {
        session,
        job: job(n),
        mode,
    }
}

pub(crate) fn give_back(session: SessionHandle, id: ReservationId) -> Effect {
    Effect::Release {
        session,
        reservation: id,
    }
}
