//! `POST /jobs/request` and the calls about runners.

use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use serde::Deserialize;

use super::body::{self, ReadError, respond};
use super::fault::{Fate, Outcome};
use super::lab::Lab;
use crate::gitlab::token::Secret;
use crate::gitlab::{Gate, Info, JobRequest, Reply};

/// The layer before Rails refuses larger job requests.
const MAX_REQUEST: u64 = 32 << 10;
/// Longest body of the other small calls.
pub(super) const MAX_SMALL: u64 = 256 << 10;

/// What the calls about runners carry; unknown fields are ignored.
#[derive(Debug, Default, Deserialize)]
struct RunnerCall {
    #[serde(default)]
    token: Option<Secret>,
    #[serde(default)]
    system_id: Option<String>,
    #[serde(default)]
    info: Option<Info>,
}

/// A call about a runner.
#[derive(Debug, Clone, Copy)]
pub(super) enum RunnerAction {
    Verify,
    ResetToken,
    Delete,
    DeleteManager,
}

/// Notes a job request whose caller goes away while it is being answered: then the call's future
/// is dropped with this inside.
struct Attended {
    lab: Arc<Lab>,
    system_id: Option<String>,
    answered: bool,
    torn: u64,
}

impl Drop for Attended {
    fn drop(&mut self) {
        // A connection that the server itself broke is not the caller's doing.
        let torn = self.lab.faults.tear.count() != self.torn;
        if !self.answered && !torn && !self.lab.is_stopping() {
            self.lab
                .with(|gitlab, _| gitlab.request_aborted(self.system_id.as_deref()));
        }
    }
}

/// Answers a job request.
pub(super) async fn jobs(lab: &Arc<Lab>, request: Request<Incoming>, fate: &Fate) -> Outcome {
    let is_json = is_json(&request);
    let bytes = match body::read(request.into_body(), MAX_REQUEST, body::STALL).await {
        Ok(bytes) => bytes,
        Err(error) => return Ok(respond(unread(&error))),
    };
    if let Some(outcome) = fate.body_read(lab).await {
        return outcome;
    }
    let Ok(asked) = serde_json::from_slice::<JobRequest>(&bytes) else {
        return Ok(respond(Reply::invalid(
            "the body is not a JSON object of this call",
        )));
    };
    let system_id = asked.system_id.clone();
    let mut attended = Attended {
        lab: Arc::clone(lab),
        system_id,
        answered: false,
        torn: lab.faults.tear.count(),
    };
    let reply = answer(lab, &asked, is_json).await;
    attended.answered = true;
    if let Some(job) = reply.job.filter(|_| fate.is_lost()) {
        lab.with(|gitlab, _| gitlab.hand_out_lost(job));
    }
    Ok(respond(reply))
}

async fn answer(lab: &Lab, asked: &JobRequest, is_json: bool) -> Reply {
    // Subscribed before the look, so that a change in between wakes.
    let mut changed = lab.on_tick();
    let (gate, hold) =
        lab.look(|gitlab, now| (gitlab.gate(asked, now), gitlab.settings.long_poll_ns));
    let reply = if is_json && gate == Gate::Hold {
        let wait = async {
            while changed.changed().await.is_ok() {
                if lab.look(|gitlab, now| gitlab.gate(asked, now)) == Gate::Pass {
                    return;
                }
            }
        };
        // A wake carries no job, and neither it nor the end of the hold names a queue value.
        let _ = tokio::time::timeout(Duration::from_nanos(hold), wait).await;
        lab.with(|gitlab, now| gitlab.held_in_vain(asked, now));
        Reply::empty(204)
    } else {
        lab.with(|gitlab, now| gitlab.request_job(asked, now))
    };
    if hold > 0 {
        reply.header("Gitlab-Ci-Builds-Polling", "yes")
    } else {
        reply
    }
}

/// Answers a call about a runner.
pub(super) async fn runner(
    lab: &Lab,
    request: Request<Incoming>,
    action: RunnerAction,
    fate: &Fate,
) -> Outcome {
    let query = super::route::query(&request);
    let bytes = match body::read(request.into_body(), MAX_SMALL, body::STALL).await {
        Ok(bytes) => bytes,
        Err(error) => return Ok(respond(unread(&error))),
    };
    if let Some(outcome) = fate.body_read(lab).await {
        return outcome;
    }
    let call = match serde_json::from_slice::<RunnerCall>(&bytes) {
        Ok(call) => call,
        Err(_) if bytes.is_empty() => RunnerCall::default(),
        Err(_) => {
            let text = "the body is not a JSON object of this call";
            return Ok(respond(Reply::invalid(text)));
        }
    };
    let token = call
        .token
        .or_else(|| query.get("token").cloned().map(Secret::new));
    let system = call.system_id.or_else(|| query.get("system_id").cloned());
    let (token, system) = (token.as_ref().map(Secret::expose), system.as_deref());
    let reply = lab.with(|gitlab, now| match action {
        RunnerAction::Verify => gitlab.verify(token, system, call.info.as_ref(), now),
        RunnerAction::ResetToken => gitlab.reset_runner_token(token, now),
        RunnerAction::Delete => gitlab.delete_runner(token, now),
        RunnerAction::DeleteManager => gitlab.delete_manager(token, system, now),
    });
    Ok(respond(reply))
}

/// The answer to a body that could not be read.
pub(super) fn unread(error: &ReadError) -> Reply {
    match error {
        ReadError::TooLarge(_) => Reply::message(413, "413 Request Entity Too Large"),
        ReadError::Stalled(_) => Reply::message(408, "408 Request Timeout"),
        ReadError::Cut(_) => Reply::message(400, "400 Bad request - the body ended early"),
    }
}

fn is_json(request: &Request<Incoming>) -> bool {
    let kind = request
        .headers()
        .get("content-type")
        .and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| {
        kind.trim_start()
            .to_ascii_lowercase()
            .starts_with("application/json")
    })
}
