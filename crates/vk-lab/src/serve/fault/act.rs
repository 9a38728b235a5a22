//! What a fault does to its call, at each of the three moments.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::header::{HeaderName, HeaderValue, LOCATION};

use super::plan::{Action, Plan, When};
use crate::gitlab::Reply;
use crate::serve::body::{OutBody, Withheld, full, half, respond, trickled};
use crate::serve::lab::Lab;

/// Longest delay of an answer.
const MAX_DELAY_MS: u64 = 60_000;
/// Longest stall.
const MAX_STALL_MS: u64 = 600_000;

/// What a call answers: nothing where its connection is to be closed.
pub(in crate::serve) type Outcome = Result<Response<OutBody>, Withheld>;

/// What is to happen to one call.
#[derive(Debug, Default)]
pub(in crate::serve) struct Fate {
    plan: Option<Plan>,
    job: Option<u64>,
    path: String,
}

impl Fate {
    /// The fate of a call of `job` to `path` (with its query).
    pub(in crate::serve) fn new(plan: Option<Plan>, job: Option<u64>, path: &str) -> Self {
        let path = path.to_owned();
        Self { plan, job, path }
    }

    /// Whether what is applied never becomes known to the caller.
    pub(in crate::serve) fn is_lost(&self) -> bool {
        self.plan.as_ref().is_some_and(Plan::loses_answer)
    }

    /// Before anything of the call is looked at. What it is answered, where it ends here.
    pub(in crate::serve) async fn before(&self, lab: &Lab) -> Option<Outcome> {
        self.at(When::Before, lab).await
    }

    /// After its body was read, before anything is applied.
    pub(in crate::serve) async fn body_read(&self, lab: &Lab) -> Option<Outcome> {
        self.at(When::Body, lab).await
    }

    /// After it was applied.
    pub(in crate::serve) async fn after(&self, lab: &Lab, response: Response<OutBody>) -> Outcome {
        if let Some(outcome) = self.at(When::After, lab).await {
            return outcome;
        }
        let Some(plan) = self
            .plan
            .as_ref()
            .filter(|plan| plan.moment() == When::After)
        else {
            return Ok(response);
        };
        change(&plan.action, response).await
    }

    async fn at(&self, moment: When, lab: &Lab) -> Option<Outcome> {
        let plan = self.plan.as_ref().filter(|plan| plan.moment() == moment)?;
        match &plan.action {
            Action::Status(status) => Some(Ok(respond(faulty(*status, plan)))),
            Action::Drop | Action::LoseAnswer => Some(Err(Withheld)),
            Action::StallMs(ms) => {
                pause((*ms).min(MAX_STALL_MS)).await;
                Some(Err(Withheld))
            }
            Action::Redirect { status, to } => Some(Ok(self.redirect(*status, to.as_deref(), lab))),
            Action::DelayMs(ms) => {
                pause((*ms).min(MAX_DELAY_MS)).await;
                None
            }
            Action::Cancel { force } => {
                let job = self.job?;
                // One that is not there is found out by the call itself.
                let _ = lab.with(|gitlab, now| gitlab.cancel(job, *force, now));
                None
            }
            Action::ForgetTrace { keep, tail } => {
                let job = self.job?;
                let _ = lab.with(|gitlab, _| match tail {
                    Some(tail) => gitlab.forget_tail(job, *tail),
                    None => gitlab.forget_trace(job, *keep),
                });
                None
            }
            Action::Truncate | Action::TrickleMs(_) | Action::Headers(_) | Action::Body(_) => None,
        }
    }

    fn redirect(&self, status: u16, to: Option<&str>, lab: &Lab) -> Response<OutBody> {
        let other = lab.faults.elsewhere.url();
        let base = to.map(str::to_owned).or(other).unwrap_or_default();
        let place = format!("{}{}", base.trim_end_matches('/'), self.path);
        let mut response = respond(Reply::empty(status));
        if let Ok(value) = HeaderValue::from_str(&place) {
            response.headers_mut().insert(LOCATION, value);
        }
        response
    }
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Changes an answer on its way out.
async fn change(action: &Action, response: Response<OutBody>) -> Outcome {
    match action {
        Action::Truncate => {
            let (mut head, body) = response.into_parts();
            let bytes = body.collect().await.map_err(|_| Withheld)?.to_bytes();
            head.headers.insert("content-length", bytes.len().into());
            Ok(Response::from_parts(head, half(bytes)))
        }
        Action::TrickleMs(ms) => {
            let (head, body) = response.into_parts();
            let bytes = body.collect().await.map_err(|_| Withheld)?.to_bytes();
            let apart = Duration::from_millis((*ms).min(10_000));
            Ok(Response::from_parts(head, trickled(bytes, apart)))
        }
        Action::Body(text) => {
            let (mut head, _) = response.into_parts();
            head.headers.remove("content-length");
            Ok(Response::from_parts(head, full(text.clone())))
        }
        Action::Headers(headers) => {
            let mut response = response;
            for (name, value) in headers {
                let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
                    continue;
                };
                let value = value.as_deref().map(HeaderValue::from_str);
                match value {
                    Some(Ok(value)) => drop(response.headers_mut().insert(name, value)),
                    _ => drop(response.headers_mut().remove(name)),
                }
            }
            Ok(response)
        }
        _ => Ok(response),
    }
}

/// The answer of a status that was asked for.
fn faulty(status: u16, plan: &Plan) -> Reply {
    let reply = match status {
        409 => Reply::message(409, "409 Conflict"),
        429 => Reply::limited(),
        204 | 304 => Reply::empty(status),
        other => Reply::message(other, &format!("{other} made by a fault")),
    };
    match plan.retry_after {
        Some(secs) => reply.header("Retry-After", secs.to_string()),
        None => reply,
    }
}
