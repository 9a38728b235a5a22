//! `PUT /jobs/:id` and `PATCH /jobs/:id/trace`.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, Response};

use super::body::{self, OutBody, ReadError, respond};
use super::fault::{Fate, Outcome};
use super::lab::Lab;
use super::request::{MAX_SMALL, unread};
use super::route;
use crate::gitlab::{Reply, Update};

/// A patch is never read further than this, whatever the trace's limit is.
const MAX_PATCH: u64 = 1 << 30;

/// Answers an update.
pub(super) async fn update(lab: &Lab, id: u64, request: Request<Incoming>, fate: &Fate) -> Outcome {
    let lost = fate.is_lost();
    let begun = lab.with(|gitlab, _| gitlab.call_begins());
    let bytes = match body::read(request.into_body(), MAX_SMALL, body::STALL).await {
        Ok(bytes) => bytes,
        Err(error) => return Ok(respond(unread(&error))),
    };
    if let Some(outcome) = fate.body_read(lab).await {
        return outcome;
    }
    let Ok(update) = serde_json::from_slice::<Update>(&bytes) else {
        let text = "the body is not a JSON object of this call";
        return Ok(respond(Reply::invalid(text)));
    };
    let reply = lab.with(|gitlab, now| {
        gitlab.count_bytes(id, bytes.len() as u64);
        gitlab.update(id, &update, begun, lost, now)
    });
    Ok(told(lab, id, reply, lost))
}

/// Answers, and notes what the runner is told of its job's status.
fn told(lab: &Lab, id: u64, reply: Reply, lost: bool) -> Response<OutBody> {
    if !lost && let Some(status) = reply.job_status() {
        lab.with(|gitlab, now| gitlab.note_told(id, status, now));
    }
    respond(reply)
}

/// Gives the trace's lock back, also when the writer goes away in the middle of its body.
struct Lock {
    lab: Arc<Lab>,
    id: u64,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.lab.with(|gitlab, _| gitlab.end_patch(self.id));
    }
}

/// Answers a patch of a trace.
pub(super) async fn patch(
    lab: &Arc<Lab>,
    id: u64,
    request: Request<Incoming>,
    fate: &Fate,
) -> Outcome {
    let lost = fate.is_lost();
    let query = route::query(&request);
    let token = route::job_token(&request, &query).unwrap_or_default();
    let range = request.headers().get("content-range");
    let range = range.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let debug = query
        .get("debug_trace")
        .is_some_and(|value| value == "true");
    let begun = lab.with(|gitlab, now| {
        let begun = gitlab.call_begins();
        gitlab.begin_patch(id, &token, range.as_deref(), begun, lost, now)
    });
    let start = match begun {
        Ok(start) => start,
        Err(reply) => return Ok(told(lab, id, reply, lost)),
    };
    let lock = Lock {
        lab: Arc::clone(lab),
        id,
    };
    let limit = lab.look(|gitlab, _| gitlab.settings.trace_limit_mib) << 20;
    let most = if limit == 0 {
        MAX_PATCH
    } else {
        limit.min(MAX_PATCH)
    };
    let reply = match body::read(request.into_body(), most, body::STALL).await {
        Ok(mut bytes) => {
            if let Some(outcome) = fate.body_read(lab).await {
                return outcome;
            }
            lab.with(|gitlab, now| gitlab.append(id, start, &mut bytes, debug, lost, now))
        }
        // A body as large as the whole limit is over it wherever it starts.
        Err(ReadError::TooLarge(_)) => {
            lab.with(|gitlab, now| gitlab.append(id, u64::MAX, &mut [], debug, lost, now))
        }
        Err(error) => unread(&error),
    };
    drop(lock);
    Ok(told(lab, id, reply, lost))
}
