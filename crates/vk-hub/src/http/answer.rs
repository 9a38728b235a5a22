//! Answers as HTTP has them.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use vk_hub_core::{Answer, OutputAnswer, Refusal};
use vk_hub_proto::client::{ClientError, ErrorCode};

use crate::fleet::Reply;

/// A whole answer.
pub(crate) type HttpAnswer = Response<Full<Bytes>>;

/// An empty answer with a status.
pub(crate) fn empty(status: u16) -> HttpAnswer {
    with_body(status, Bytes::new())
}

/// A JSON answer.
pub(crate) fn json<B: Serialize>(status: u16, body: &B) -> HttpAnswer {
    match serde_json::to_vec(body) {
        Ok(body) => {
            let mut answer = with_body(status, body.into());
            header(&mut answer, "content-type", "application/json");
            answer
        }
        Err(error) => {
            tracing::error!(%error, "an answer is no JSON");
            empty(500)
        }
    }
}

/// A refusal.
pub(crate) fn refused(code: ErrorCode, why: impl Into<String>) -> HttpAnswer {
    let error = ClientError {
        error: why.into(),
        code,
        retry_after_secs: code.retry_after_secs(),
        job: None,
    };
    refusal(&Refusal {
        status: code.status(),
        error,
    })
}

/// A refusal of the fleet's (ERR-01, ERR-28).
pub(crate) fn refusal(refusal: &Refusal) -> HttpAnswer {
    let mut answer = json(refusal.status, &refusal.error);
    if let Some(secs) = refusal.error.retry_after_secs {
        header(&mut answer, "retry-after", &secs.to_string());
    }
    answer
}

/// The fleet's answer to a request.
pub(crate) fn of_reply(reply: Reply) -> HttpAnswer {
    match reply.answer {
        Answer::Capacity(capacity) => json(200, &capacity),
        Answer::Granted(grant) => json(201, &grant),
        Answer::Renewed(grant) => json(200, &grant),
        Answer::Submitted(view) => json(201, &view),
        Answer::View(view) => json(200, &view),
        Answer::CancelTaken(view) => json(202, &view),
        Answer::Released | Answer::Settled | Answer::Done => empty(204),
        Answer::Output(read) => output(&read, reply.bytes),
        Answer::PastEnd { length } => {
            let mut answer = empty(416);
            header(&mut answer, "vk-output-length", &length.to_string());
            answer
        }
        Answer::Refused(refused) => refusal(&refused),
    }
}

/// API-37, API-38
fn output(read: &OutputAnswer, bytes: Vec<u8>) -> HttpAnswer {
    let mut answer = with_body(200, bytes.into());
    header(&mut answer, "content-type", "application/octet-stream");
    header(&mut answer, "vk-output-offset", &read.offset.to_string());
    header(&mut answer, "vk-output-length", &read.length.to_string());
    if read.complete {
        header(&mut answer, "vk-output-complete", "true");
    }
    answer
}

fn with_body(status: u16, body: Bytes) -> HttpAnswer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer
}

fn header(answer: &mut HttpAnswer, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer
            .headers_mut()
            .insert(HeaderName::from_static(name), value);
    }
}
