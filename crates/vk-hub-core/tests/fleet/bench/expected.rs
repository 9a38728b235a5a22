//! What tests expect: effects in few words, answers taken apart.

use std::sync::Arc;

use vk_hub_core::{Answer, Effect, Refusal, RequestHandle, SessionHandle};
use vk_hub_proto::ReservationId;
use vk_hub_proto::client::{CancelMode, ErrorCode};

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

pub(crate) fn start(session: SessionHandle, n: u8, on: Option<ReservationId>) -> Effect {
    Effect::Start {
        session,
        job: job(n),
        reservation: on,
        envelope: ENVELOPE,
        spec: Arc::new(spec(n)),
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
