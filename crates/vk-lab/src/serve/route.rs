//! Which call a request is, and what every call needs of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use hyper::body::Incoming;
use hyper::header::{DATE, HeaderValue};
use hyper::{Method, Request};

use super::body::respond;
use super::fault::{Fate, Outcome, Target};
use super::lab::Lab;
use super::request::RunnerAction;
use super::{artifacts, git, jobs, registry, request};
use crate::gitlab::Reply;

/// Most query parameters looked at.
const MAX_QUERY: usize = 64;

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

/// Answers one request, or closes its connection where a fault says so. The answer's date is that
/// of the server's own clock.
pub(super) async fn answer(lab: Arc<Lab>, request: Request<Incoming>) -> Outcome {
    let mut response = outcome(&lab, request).await?;
    let date = UNIX_EPOCH + Duration::from_millis(lab.look(|_, now| now));
    if let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(date)) {
        response.headers_mut().entry(DATE).or_insert(date);
    }
    Ok(response)
}

async fn outcome(lab: &Arc<Lab>, request: Request<Incoming>) -> Outcome {
    let is_api = request.uri().path().starts_with("/api/v4/");
    let call = is_api.then(|| call_of(request.method(), request.uri().path()));
    let is_registry = registry::is_registry(request.uri().path());
    let other = if is_registry {
        Target::Registry
    } else {
        Target::Git
    };
    let (target, job) = call.map_or((Some(other), None), target_of);
    let path = request
        .uri()
        .path_and_query()
        .map_or("", |path| path.as_str());
    let drawn = target.and_then(|target| lab.look(|_, now| lab.faults.draw(target, job, now)));
    let fate = Fate::new(drawn, job, path);
    if let Some(outcome) = fate.before(lab).await {
        return outcome;
    }
    let response = match call {
        None if is_registry => registry::answer(lab, &request).await,
        None => git::answer(lab, request).await,
        Some(call) => match lab.look(|gitlab, _| gitlab.migrating()) {
            Err(reply) => respond(reply),
            Ok(()) => dispatch(lab, call, request, &fate).await?,
        },
    };
    fate.after(lab, response).await
}

async fn dispatch(lab: &Arc<Lab>, call: Call, request: Request<Incoming>, fate: &Fate) -> Outcome {
    match call {
        Call::Request => request::jobs(lab, request, fate).await,
        Call::Runner(action) => request::runner(lab, request, action, fate).await,
        Call::Update(id) => jobs::update(lab, id, request, fate).await,
        Call::Trace(id) => jobs::patch(lab, id, request, fate).await,
        Call::Upload(id) => artifacts::upload(lab, id, request, fate).await,
        Call::Download(id) => Ok(artifacts::download(lab, id, &request).await),
        Call::Refused(status, text) => Ok(respond(Reply::message(status, text))),
    }
}

/// What a fault knows a call by.
fn target_of(call: Call) -> (Option<Target>, Option<u64>) {
    match call {
        Call::Request => (Some(Target::Request), None),
        Call::Runner(RunnerAction::Verify) => (Some(Target::Verify), None),
        Call::Runner(_) => (Some(Target::Runner), None),
        Call::Update(id) => (Some(Target::Update), Some(id)),
        Call::Trace(id) => (Some(Target::Trace), Some(id)),
        Call::Upload(id) => (Some(Target::Upload), Some(id)),
        Call::Download(id) => (Some(Target::Download), Some(id)),
        Call::Refused(..) => (None, None),
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
