//! Git LFS, downloads only: the batch call and the objects, which lie in the repository that was
//! given (`lfs/objects/` below its git directory).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::fs;

use super::super::body::{self, OutBody, respond};
use super::super::lab::Lab;
use super::super::request::unread;
use crate::gitlab::Reply;

/// Largest batch call.
const MAX_BATCH: u64 = 1 << 20;
/// Most objects of one call.
const MAX_OBJECTS: usize = 1_000;
/// What LFS calls are written in.
const KIND: &str = "application/vnd.git-lfs+json";

/// The batch call; unknown fields are ignored.
#[derive(Debug, Deserialize)]
struct Batch {
    operation: String,
    objects: Vec<Object>,
}

#[derive(Debug, Deserialize)]
struct Object {
    oid: String,
    size: u64,
}

/// Whether a path below a repository is one of LFS.
pub(super) fn is_lfs(service: &str) -> bool {
    service.starts_with("info/lfs/") || service.starts_with("gitlab-lfs/objects/")
}

/// Answers a call whose caller may read the repository at `source`.
pub(super) async fn answer(
    lab: &Arc<Lab>,
    request: Request<Incoming>,
    project: &str,
    source: &Path,
    service: &str,
) -> Response<OutBody> {
    let oid = service.strip_prefix("gitlab-lfs/objects/");
    match (request.method(), oid) {
        (&Method::GET, Some(oid)) => object(source, oid).await,
        (&Method::POST, None) if service == "info/lfs/objects/batch" => {
            batch(lab, request, project, source).await
        }
        // Downloads need no locks, and uploads are not for jobs.
        _ => problem(404, "not found"),
    }
}

async fn batch(
    lab: &Arc<Lab>,
    request: Request<Incoming>,
    project: &str,
    source: &Path,
) -> Response<OutBody> {
    let header = request.headers().get("authorization");
    let credentials = header
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let bytes = match body::read(request.into_body(), MAX_BATCH, body::STALL).await {
        Ok(bytes) => bytes,
        Err(error) => return respond(unread(&error)),
    };
    let Ok(batch) = serde_json::from_slice::<Batch>(&bytes) else {
        return problem(422, "the body is no batch request");
    };
    if batch.operation != "download" {
        return problem(403, "a job's token only downloads");
    }
    if batch.objects.len() > MAX_OBJECTS {
        return problem(413, "too many objects in one request");
    }
    let base = lab.look(|gitlab, _| gitlab.base_url().to_owned());
    let mut objects = Vec::new();
    for wanted in &batch.objects {
        objects.push(entry(wanted, source, &base, project, credentials.as_deref()).await);
    }
    lfs(200, &json!({"transfer": "basic", "objects": objects}))
}

async fn entry(
    wanted: &Object,
    source: &Path,
    base: &str,
    project: &str,
    credentials: Option<&str>,
) -> Value {
    let found = match place(source, &wanted.oid) {
        Some(path) => fs::metadata(path)
            .await
            .is_ok_and(|meta| meta.len() == wanted.size),
        None => false,
    };
    if !found {
        let error = json!({"code": 404, "message": "Object does not exist on the server or you \
                           don't have permissions to access it"});
        return json!({"oid": wanted.oid, "size": wanted.size, "error": error});
    }
    let href = format!("{base}/{project}.git/gitlab-lfs/objects/{}", wanted.oid);
    let download = json!({"href": href, "header": {"Authorization": credentials}});
    json!({"oid": wanted.oid, "size": wanted.size, "authenticated": true,
           "actions": {"download": download}})
}

async fn object(source: &Path, oid: &str) -> Response<OutBody> {
    let Some(path) = place(source, oid) else {
        return problem(404, "not found");
    };
    let Ok(file) = fs::File::open(path).await else {
        return problem(404, "not found");
    };
    let reply = Reply::empty(200).header("Content-Type", "application/octet-stream");
    let mut response = respond(reply);
    *response.body_mut() = body::stream(file);
    response
}

/// Where an object lies, of a plain or a bare repository.
fn place(source: &Path, oid: &str) -> Option<PathBuf> {
    let is_sum = oid.len() == 64 && oid.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let (first, second) = (oid.get(..2)?, oid.get(2..4)?);
    let git = source.join(".git");
    let git = if git.is_dir() { git } else { source.to_owned() };
    is_sum.then(|| git.join("lfs/objects").join(first).join(second).join(oid))
}

fn problem(status: u16, text: &str) -> Response<OutBody> {
    lfs(status, &json!({ "message": text }))
}

fn lfs(status: u16, value: &Value) -> Response<OutBody> {
    respond(Reply {
        body: value.to_string(),
        ..Reply::empty(status).header("Content-Type", KIND)
    })
}
