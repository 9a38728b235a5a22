//! Which call a request is, and what every call needs of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Request, Response};

use super::body::{OutBody, Withheld, half, respond};
use super::fault::{Action, Plan, Target};
use super::lab::Lab;
use super::request::RunnerAction;
use super::{artifacts, git, jobs, request};
use crate::gitlab::Reply;

/// Most query parameters looked at.
const MAX_QUERY: usize = 64;
/// Longest delay of an answer.
const MAX_DELAY_MS: u64 = 60_000;

/// A call of the API.
#[derive(Debug, Clone, Copy)]
enum Call {
    Request,
    Runner(RunnerAction),
    Update(u64),
    Trace(u64),
    Upload(u64),
    Download(u64),
    Refused(u16, &'static str),
}

/// Answers one request, or closes its connection where a fault says so.
pub(super) async fn answer(
    lab: Arc<Lab>,
    request: Request<Incoming>,
) -> Result<Response<OutBody>, Withheld> {
    if !request.uri().path().starts_with("/api/v4/") {
        return Ok(git::answer(&lab, request).await);
    }
    let call = call_of(request.method(), request.uri().path());
    let plan = target_of(call).and_then(|target| lab.faults.draw(target));
    match plan.as_ref().map(|plan| &plan.action) {
        Some(Action::Status(status)) => return Ok(respond(faulty(*status, plan.as_ref()))),
        Some(Action::Drop) => return Err(Withheld),
        _ => {}
    }
    let action = plan.map(|plan| plan.action);
    let lost = matches!(action, Some(Action::LoseAnswer | Action::Truncate));
    let response = dispatch(&lab, call, request, lost).await;
    afterwards(response, action).await
}

async fn dispatch(
    lab: &Arc<Lab>,
    call: Call,
    request: Request<Incoming>,
    lost: bool,
) -> Response<OutBody> {
    match call {
        Call::Request => request::jobs(lab, request).await,
        Call::Runner(action) => request::runner(lab, request, action).await,
        Call::Update(id) => jobs::update(lab, id, request, lost).await,
        Call::Trace(id) => jobs::patch(lab, id, request, lost).await,
        Call::Upload(id) => artifacts::upload(lab, id, request).await,
        Call::Download(id) => artifacts::download(lab, id, &request).await,
        Call::Refused(status, text) => respond(Reply::message(status, text)),
    }
}

async fn afterwards(
    response: Response<OutBody>,
    action: Option<Action>,
) -> Result<Response<OutBody>, Withheld> {
    match action {
        Some(Action::LoseAnswer) => Err(Withheld),
        Some(Action::DelayMs(ms)) => {
            tokio::time::sleep(Duration::from_millis(ms.min(MAX_DELAY_MS))).await;
            Ok(response)
        }
        Some(Action::Truncate) => {
            let (mut head, body) = response.into_parts();
            let bytes = body.collect().await.map_err(|_| Withheld)?.to_bytes();
            head.headers.insert("content-length", bytes.len().into());
            Ok(Response::from_parts(head, half(bytes)))
        }
        _ => Ok(response),
    }
}

fn target_of(call: Call) -> Option<Target> {
    match call {
        Call::Request => Some(Target::Request),
        Call::Update(_) => Some(Target::Update),
        Call::Trace(_) => Some(Target::Trace),
        _ => None,
    }
}

fn faulty(status: u16, plan: Option<&Plan>) -> Reply {
    let reply = match status {
        409 => Reply::message(409, "409 Conflict"),
        other => Reply::message(other, &format!("{other} made by a fault")),
    };
    match plan.and_then(|plan| plan.retry_after) {
        Some(secs) => reply.header("Retry-After", secs.to_string()),
        None => reply,
    }
}

fn call_of(method: &Method, path: &str) -> Call {
    let parts: Vec<&str> = path.trim_matches('/').split('/').skip(2).take(5).collect();
    match (method.as_str(), parts.as_slice()) {
        ("POST", ["jobs", "request"]) => Call::Request,
        ("POST", ["runners", "verify"]) => Call::Runner(RunnerAction::Verify),
        ("POST", ["runners", "reset_authentication_token"]) => {
            Call::Runner(RunnerAction::ResetToken)
        }
        ("DELETE", ["runners"]) => Call::Runner(RunnerAction::Delete),
        ("DELETE", ["runners", "managers"]) => Call::Runner(RunnerAction::DeleteManager),
        ("POST", ["runners"]) => Call::Refused(410, "410 Gone - registration by token is off"),
        ("GET", ["runners", "router", "discovery"]) => Call::Refused(
            501,
            "501 Not Implemented - Job Router is not available. Please contact your administrator.",
        ),
        ("POST", ["jobs", _, "artifacts", "authorize"]) => {
            Call::Refused(403, "403 Forbidden - only through Workhorse")
        }
        (method, ["jobs", id, rest @ ..]) => job_call(method, id, rest),
        _ => Call::Refused(404, "404 Not Found"),
    }
}

fn job_call(method: &str, id: &str, rest: &[&str]) -> Call {
    let Ok(id) = id.parse() else {
        return Call::Refused(404, "404 Not Found");
    };
    match (method, rest) {
        ("PUT", []) => Call::Update(id),
        ("PATCH", ["trace"]) => Call::Trace(id),
        ("POST", ["artifacts"]) => Call::Upload(id),
        ("GET", ["artifacts"]) => Call::Download(id),
        _ => Call::Refused(404, "404 Not Found"),
    }
}

/// The query's parameters, decoded; the last of a name wins.
pub(super) fn query(request: &Request<Incoming>) -> BTreeMap<String, String> {
    let text = request.uri().query().unwrap_or_default();
    let pairs = text
        .split('&')
        .take(MAX_QUERY)
        .filter(|pair| !pair.is_empty());
    let halves = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    halves
        .map(|(key, value)| (decode(key), decode(value)))
        .collect()
}

/// The job's token: the parameter `token`, else the header `JOB-TOKEN`.
pub(super) fn job_token(
    request: &Request<Incoming>,
    query: &BTreeMap<String, String>,
) -> Option<String> {
    let header = request
        .headers()
        .get("job-token")
        .and_then(|value| value.to_str().ok());
    query
        .get("token")
        .cloned()
        .or_else(|| header.map(str::to_owned))
}

/// `application/x-www-form-urlencoded`: `+` and `%xx`; what is not such stays as it is.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let code = tail
            .get(..2)
            .and_then(|code| std::str::from_utf8(code).ok());
        let value = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        let (decoded, used) = match (byte, value) {
            (b'+', _) => (b' ', 0),
            (b'%', Some(value)) => (value, 2),
            (byte, _) => (byte, 0),
        };
        bytes.push(decoded);
        rest = tail.get(used..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn a_query_is_decoded_and_what_is_no_code_stays() {
        for (text, want) in [
            ("a+b%20c", "a b c"),
            ("%zz%2", "%zz%2"),
            ("%C3%A4", "ä"),
            ("", ""),
        ] {
            assert_eq!(decode(text), want);
        }
    }
}
