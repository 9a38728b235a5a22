//! The container registry and the dependency proxy: pulling only, from OCI layouts on this host.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use serde::Deserialize;
use serde_json::json;
use tokio::fs;
use tokio::io::AsyncReadExt as _;

use super::body::{self, OutBody, full, respond};
use super::lab::Lab;
use super::route;
use crate::gitlab::Reply;

/// Largest manifest or index.
const MAX_MANIFEST: u64 = 4 << 20;

/// An image layout's index; unknown fields are ignored.
#[derive(Debug, Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct Descriptor {
    #[serde(rename = "mediaType")]
    media_type: String,
    digest: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

/// What is asked for.
enum Asked<'a> {
    Base,
    Manifest(&'a str, &'a str),
    Blob(&'a str, &'a str),
}

/// Whether a path is one of the registry's.
pub(super) fn is_registry(path: &str) -> bool {
    path == "/v2/" || path.starts_with("/v2/") || path == "/jwt/auth"
}

/// Answers a call of a registry's client.
pub(super) async fn answer(lab: &Lab, request: &Request<Incoming>) -> Response<OutBody> {
    if request.uri().path() == "/jwt/auth" {
        return respond(login(lab, request));
    }
    let is_head = request.method() == Method::HEAD;
    if !is_head && request.method() != Method::GET {
        return respond(problem(405, "UNSUPPORTED", "only pulling"));
    }
    let Some(asked) = parse(request.uri().path()) else {
        return respond(problem(404, "NAME_UNKNOWN", "no such call"));
    };
    if let Err(reply) = allowed(lab, request, &asked) {
        return respond(reply);
    }
    let mut response = match asked {
        Asked::Base => respond(Reply {
            body: "{}".into(),
            ..Reply::empty(200)
        }),
        Asked::Manifest(name, reference) => manifest(lab, name, reference).await,
        Asked::Blob(name, digest) => blob(lab, name, digest).await,
    };
    if is_head {
        *response.body_mut() = full("");
    }
    response
}

fn parse(path: &str) -> Option<Asked<'_>> {
    let rest = path.strip_prefix("/v2/")?;
    if rest.is_empty() {
        return Some(Asked::Base);
    }
    if let Some((name, reference)) = rest.rsplit_once("/manifests/") {
        return Some(Asked::Manifest(name, reference));
    }
    let (name, digest) = rest.rsplit_once("/blobs/")?;
    Some(Asked::Blob(name, digest))
}

/// A token for pulling, for a running job's token as the password.
fn login(lab: &Lab, request: &Request<Incoming>) -> Reply {
    let denied = || Reply::message(401, "HTTP Basic: Access denied");
    let header = request.headers().get("authorization");
    let header = header
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let encoded = header.strip_prefix("Basic ").unwrap_or_default();
    let decoded = STANDARD.decode(encoded.trim()).unwrap_or_default();
    let text = String::from_utf8(decoded).unwrap_or_default();
    let Some(("gitlab-ci-token", password)) = text.split_once(':') else {
        return denied();
    };
    let query = route::query(request);
    let scope = query.get("scope").map(String::as_str).unwrap_or_default();
    // repository:<name>:<actions>
    let name = scope
        .strip_prefix("repository:")
        .and_then(|rest| rest.rsplit_once(':'));
    let name = name.map_or("", |(name, _)| name);
    match lab.with(|gitlab, now| gitlab.pull_token(password, name, now)) {
        Some(token) => Reply {
            body: json!({"token": token.expose(), "expires_in": 300}).to_string(),
            ..Reply::empty(200)
        },
        None => denied(),
    }
}

fn allowed(lab: &Lab, request: &Request<Incoming>, asked: &Asked<'_>) -> Result<(), Reply> {
    let header = request.headers().get("authorization");
    let header = header
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let token = header.strip_prefix("Bearer ").unwrap_or_default();
    let (base, good) = lab.look(|gitlab, now| {
        let good = match asked {
            Asked::Base => gitlab.may_pull(token, "", now).map(|_| true),
            Asked::Manifest(name, _) | Asked::Blob(name, _) => gitlab.may_pull(token, name, now),
        };
        (gitlab.base_url().to_owned(), good)
    });
    if good == Some(true) {
        return Ok(());
    }
    let (name, service) = match asked {
        Asked::Base => ("", "container_registry"),
        Asked::Manifest(name, _) | Asked::Blob(name, _) if name.contains("/dependency_proxy/") => {
            (*name, "dependency_proxy")
        }
        Asked::Manifest(name, _) | Asked::Blob(name, _) => (*name, "container_registry"),
    };
    let mut challenge = format!("Bearer realm=\"{base}/jwt/auth\",service=\"{service}\"");
    if !name.is_empty() {
        challenge.push_str(&format!(",scope=\"repository:{name}:pull\""));
    }
    if good.is_some() {
        challenge.push_str(",error=\"insufficient_scope\"");
    }
    let reply = problem(401, "UNAUTHORIZED", "authentication required");
    Err(reply.header("WWW-Authenticate", challenge))
}

async fn manifest(lab: &Lab, name: &str, reference: &str) -> Response<OutBody> {
    let unknown = || respond(problem(404, "MANIFEST_UNKNOWN", "manifest unknown"));
    let Some(layout) = lab.look(|gitlab, _| gitlab.image(name).map(Path::to_owned)) else {
        return unknown();
    };
    let Some((kind, path)) = find(&layout, reference).await else {
        return unknown();
    };
    let Ok(bytes) = small(&path).await else {
        return unknown();
    };
    let sum = digest::digest(&digest::SHA256, &bytes);
    let hex: String = sum
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let reply = Reply::empty(200)
        .header("Content-Type", kind)
        .header("Content-Length", bytes.len().to_string())
        .header("Docker-Content-Digest", format!("sha256:{hex}"));
    let mut response = respond(reply);
    *response.body_mut() = full(bytes);
    response
}

/// A manifest by its tag (or the layout's only one), or by its digest: its kind and its file.
async fn find(layout: &Path, reference: &str) -> Option<(String, PathBuf)> {
    let index: Index =
        serde_json::from_slice(&small(&layout.join("index.json")).await.ok()?).ok()?;
    let named = |entry: &&Descriptor| {
        let tag = entry.annotations.get("org.opencontainers.image.ref.name");
        let tag = tag.map(|name| name.rsplit_once(':').map_or(name.as_str(), |(_, tag)| tag));
        entry.digest == reference || tag == Some(reference)
    };
    let only = || {
        index
            .manifests
            .first()
            .filter(|_| index.manifests.len() == 1)
    };
    if let Some(entry) = index.manifests.iter().find(named) {
        return Some((entry.media_type.clone(), place(layout, &entry.digest)?));
    }
    if !reference.starts_with("sha256:") {
        let entry = only()?;
        return Some((entry.media_type.clone(), place(layout, &entry.digest)?));
    }
    // One below an index: its own words say what it is.
    let path = place(layout, reference)?;
    let value: serde_json::Value = serde_json::from_slice(&small(&path).await.ok()?).ok()?;
    Some((value.get("mediaType")?.as_str()?.to_owned(), path))
}

async fn blob(lab: &Lab, name: &str, digest: &str) -> Response<OutBody> {
    let unknown = || respond(problem(404, "BLOB_UNKNOWN", "blob unknown to registry"));
    let layout = lab.look(|gitlab, _| gitlab.image(name).map(Path::to_owned));
    let Some(path) = layout.and_then(|layout| place(&layout, digest)) else {
        return unknown();
    };
    let (Ok(meta), Ok(file)) = (fs::metadata(&path).await, fs::File::open(&path).await) else {
        return unknown();
    };
    let reply = Reply::empty(200)
        .header("Content-Type", "application/octet-stream")
        .header("Content-Length", meta.len().to_string())
        .header("Docker-Content-Digest", digest);
    let mut response = respond(reply);
    *response.body_mut() = body::stream(file);
    response
}

/// Where a blob lies in a layout.
fn place(layout: &Path, digest: &str) -> Option<PathBuf> {
    let hex = digest.strip_prefix("sha256:")?;
    let sound = hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    sound.then(|| layout.join("blobs/sha256").join(hex))
}

async fn small(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).await?;
    file.take(MAX_MANIFEST).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

fn problem(status: u16, code: &str, text: &str) -> Reply {
    Reply {
        body: json!({"errors": [{"code": code, "message": text}]}).to_string(),
        ..Reply::empty(status)
    }
}
