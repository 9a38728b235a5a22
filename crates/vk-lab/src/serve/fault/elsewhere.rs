//! Another host than the server's: the object store that downloads are sent to, and where a proxy's
//! redirect leads. It keeps what came, and no token of the server may be in it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::{hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use serde::Serialize;
use tokio::fs;

use crate::gitlab::Reply;
use crate::gitlab::artifact::Artifact;
use crate::serve::body::{self, OutBody, respond};
use crate::serve::lab::Lab;
use crate::serve::route;

/// Most requests that are remembered.
const MAX_SEEN: usize = 1_000;
/// Longest body that is looked into.
const MAX_BODY: u64 = 16 << 20;
/// How long a link to an artifact is good for.
const LINK_MS: u64 = 600_000;

/// A request that came there. Values of headers are not kept: they may be secrets.
#[derive(Debug, Clone, Serialize)]
pub(in crate::serve) struct Seen {
    method: String,
    path: String,
    headers: Vec<String>,
    bytes: usize,
}

/// The other host.
#[derive(Debug, Default)]
pub(in crate::serve) struct Elsewhere {
    url: Mutex<Option<String>>,
    seen: Mutex<VecDeque<Seen>>,
    key: std::sync::OnceLock<Option<hmac::Key>>,
}

impl Elsewhere {
    /// Where it is, once it listens.
    pub(in crate::serve) fn url(&self) -> Option<String> {
        self.url.lock().ok()?.clone()
    }

    /// It listens there.
    pub(in crate::serve) fn listens(&self, url: &str) {
        if let Ok(mut place) = self.url.lock() {
            *place = Some(url.to_owned());
        }
    }

    /// The requests that came there.
    pub(in crate::serve) fn seen(&self) -> Vec<Seen> {
        self.seen
            .lock()
            .map_or_else(|_| Vec::new(), |seen| seen.iter().cloned().collect())
    }

    /// A link to an artifact that is good for ten minutes, to whoever has it.
    pub(in crate::serve) fn link(&self, artifact: &Artifact, now: u64) -> Option<String> {
        let name = artifact.path.file_name()?.to_str()?;
        let expires = now.saturating_add(LINK_MS);
        let signature = self.sign(name, expires)?;
        let base = self.url()?;
        Some(format!(
            "{base}/artifacts/{name}?expires={expires}&signature={signature}"
        ))
    }

    fn sign(&self, name: &str, expires: u64) -> Option<String> {
        let made = || {
            let rng = rand::SystemRandom::new();
            hmac::Key::generate(hmac::HMAC_SHA256, &rng).ok()
        };
        let key = self.key.get_or_init(made).as_ref()?;
        let tag = hmac::sign(key, format!("{name}\n{expires}").as_bytes());
        Some(
            tag.as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }

    /// The file that a signed link leads to.
    fn linked(&self, lab: &Lab, request: &Request<Incoming>, now: u64) -> Option<PathBuf> {
        let query = route::query(request);
        let name = request.uri().path().strip_prefix("/artifacts/")?;
        let plain = name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        let expires: u64 = query.get("expires")?.parse().ok()?;
        let signed = self.sign(name, expires)? == *query.get("signature")?;
        (plain && signed && now < expires).then(|| lab.state.join("artifacts").join(name))
    }
}

/// Answers a request to the other host: an artifact for its signed link, 200 for anything else.
pub(in crate::serve) async fn answer(
    lab: Arc<Lab>,
    request: Request<Incoming>,
) -> Response<OutBody> {
    let host = &lab.faults.elsewhere;
    let now = lab.look(|_, now| now);
    let file = host.linked(&lab, &request, now);
    let is_link = request.uri().path().starts_with("/artifacts/");
    let is_get = request.method() == Method::GET;
    remember(&lab, request).await;
    if !is_link || !is_get {
        return respond(Reply::message(200, "200 OK - this is another host"));
    }
    let Some(path) = file else {
        return respond(Reply::message(
            403,
            "403 Forbidden - this link is not signed or too old",
        ));
    };
    let Ok(file) = fs::File::open(&path).await else {
        return respond(Reply::message(404, "404 Not Found"));
    };
    let mut response = respond(Reply::empty(200).header("Content-Type", "application/zip"));
    *response.body_mut() = body::stream(file);
    response
}

/// Keeps what came, and looks for tokens in all of it.
async fn remember(lab: &Arc<Lab>, request: Request<Incoming>) {
    let mut text = format!("{}\n", request.uri());
    let mut names = Vec::new();
    for (name, value) in request.headers() {
        names.push(name.as_str().to_owned());
        text.push_str(&String::from_utf8_lossy(value.as_bytes()));
        text.push('\n');
        text.push_str(&credentials(value.as_bytes()));
    }
    let (method, path) = (
        request.method().to_string(),
        request.uri().path().to_owned(),
    );
    let body = body::read(request.into_body(), MAX_BODY, Duration::from_secs(10)).await;
    let bytes = body.unwrap_or_default();
    text.push_str(&String::from_utf8_lossy(&bytes));
    lab.with(|gitlab, _| gitlab.arrived_elsewhere(&format!("{method} {path}"), &text));
    if let Ok(mut seen) = lab.faults.elsewhere.seen.lock() {
        if seen.len() >= MAX_SEEN {
            seen.pop_front();
        }
        seen.push_back(Seen {
            method,
            path,
            headers: names,
            bytes: bytes.len(),
        });
    }
}

/// What basic authentication hides from a plain look.
fn credentials(value: &[u8]) -> String {
    let text = std::str::from_utf8(value).unwrap_or_default();
    let encoded = text.strip_prefix("Basic ").unwrap_or_default();
    let decoded = STANDARD.decode(encoded.trim()).unwrap_or_default();
    String::from_utf8_lossy(&decoded).into_owned()
}
