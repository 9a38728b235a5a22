//! Artifacts up and down.

mod scan;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::fs;
use tokio::io::AsyncWriteExt as _;

use super::body::{self, OutBody, respond};
use super::fault::{Fate, Outcome};
use super::lab::Lab;
use super::route;
use crate::gitlab::Reply;
use crate::gitlab::artifact::Artifact;
use crate::gitlab::token;

/// Most bytes of a form beside its file.
const MAX_BESIDE: u64 = 64 << 10;

/// A file that is removed unless it is kept.
struct Arriving {
    path: PathBuf,
    kept: bool,
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.kept {
            // What cannot be removed lies in the private directory and goes with it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Answers an upload: one file in the field `file`, streamed to disk and hashed as it comes.
pub(super) async fn upload(
    lab: &Arc<Lab>,
    id: u64,
    request: Request<Incoming>,
    fate: &Fate,
) -> Outcome {
    let lost = fate.is_lost();
    let query = route::query(&request);
    let job_token = route::job_token(&request, &query).unwrap_or_default();
    let begun = lab.with(|gitlab, now| {
        let begun = gitlab.call_begins();
        gitlab.authorize_upload(id, &job_token, begun, lost, now)
    });
    if let Err(reply) = begun {
        return Ok(respond(reply));
    }
    let kind = query.get("artifact_type").map_or("archive", String::as_str);
    let limit = lab.look(|gitlab, _| gitlab.settings.artifact_limit_of(kind));
    let path = lab
        .state
        .join("artifacts")
        .join(format!("{id}-{}", token::random_text()));
    let mut arriving = Arriving { path, kept: false };
    let (mut fields, upload) = match receive(request, &arriving.path, limit).await {
        Ok(received) => received,
        Err(reply) => return Ok(respond(reply)),
    };
    if let Some(outcome) = fate.body_read(lab).await {
        return outcome;
    }
    fields.extend(query);
    let field = |name: &str, other: &str| {
        fields
            .get(name)
            .filter(|value| !value.is_empty())
            .map_or(other, String::as_str)
            .to_owned()
    };
    let (kind, format) = (
        field("artifact_type", "archive"),
        field("artifact_format", "zip"),
    );
    let upload = Artifact { kind, ..upload };
    if let Err(reply) = check_content(&upload).await {
        return Ok(respond(reply));
    }
    look_for_secrets(lab, id, &upload).await;
    let (reply, keep) =
        lab.with(|gitlab, now| gitlab.finish_upload(id, &job_token, &format, upload, lost, now));
    arriving.kept = keep;
    Ok(respond(reply))
}

type Fields = std::collections::BTreeMap<String, String>;

async fn receive(
    request: Request<Incoming>,
    path: &Path,
    limit: u64,
) -> Result<(Fields, Artifact), Reply> {
    let kind = request
        .headers()
        .get("content-type")
        .and_then(|value| value.to_str().ok());
    let boundary = multer::parse_boundary(kind.unwrap_or_default())
        .map_err(|_| Reply::message(400, "400 Bad request - no multipart boundary"))?;
    // What is beside the file is small; without a bound a body without a boundary would be kept.
    let whole = multer::SizeLimit::new().whole_stream(limit.saturating_add(MAX_BESIDE));
    let bounds = multer::Constraints::new().size_limit(whole);
    let data = body::data(request.into_body());
    let mut form = multer::Multipart::with_constraints(data, boundary, bounds);
    let (mut fields, mut file) = (Fields::new(), None);
    while let Some(mut part) = form.next_field().await.map_err(|error| cut(&error))? {
        let name = part.name().unwrap_or_default().to_owned();
        if part.file_name().is_some() {
            if name != "file" || file.is_some() {
                return Err(Reply::message(500, "500 Internal Server Error"));
            }
            file = Some(store(&mut part, path, limit).await?);
        } else if fields.len() < 32 {
            fields.insert(name, short_text(&mut part).await?);
        }
    }
    let file = file.ok_or_else(|| Reply::message(400, "400 Bad request - no file"))?;
    Ok((fields, file))
}

fn cut(error: &multer::Error) -> Reply {
    match error {
        multer::Error::StreamSizeExceeded { .. } => {
            Reply::message(413, "413 Request Entity Too Large")
        }
        _ => Reply::message(400, "400 Bad request - the body is no whole multipart form"),
    }
}

async fn short_text(part: &mut multer::Field<'_>) -> Result<String, Reply> {
    let mut text = Vec::new();
    while let Some(chunk) = part.chunk().await.map_err(|error| cut(&error))? {
        text.extend_from_slice(&chunk);
        if text.len() > 4_096 {
            return Err(Reply::invalid("a form field is too long"));
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

async fn store(part: &mut multer::Field<'_>, path: &Path, limit: u64) -> Result<Artifact, Reply> {
    let filename: String = part
        .file_name()
        .unwrap_or_default()
        .chars()
        .take(255)
        .collect();
    let failed = |_| Reply::message(500, "500 Internal Server Error - the file cannot be stored");
    let mut file = fs::File::create_new(path).await.map_err(failed)?;
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut size = 0_u64;
    while let Some(chunk) = part.chunk().await.map_err(|error| cut(&error))? {
        size += chunk.len() as u64;
        if size > limit {
            return Err(Reply::message(413, "413 Request Entity Too Large"));
        }
        hash.update(&chunk);
        file.write_all(&chunk).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    let sha256 = hash
        .finish()
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(Artifact {
        kind: String::new(),
        filename,
        size,
        sha256,
        path: path.to_owned(),
    })
}

/// A secret in an upload is on the list, whatever becomes of the upload.
async fn look_for_secrets(lab: &Arc<Lab>, id: u64, upload: &Artifact) {
    let secrets = lab.look(|gitlab, _| gitlab.secrets_of(id));
    let path = upload.path.clone();
    let looked = tokio::task::spawn_blocking(move || scan::secrets_in(&path, &secrets)).await;
    // A file that cannot be read was not kept, and that is answered.
    let found = looked.ok().and_then(Result::ok).unwrap_or_default();
    lab.with(|gitlab, _| {
        for name in &found {
            gitlab.found_in_upload(id, &upload.kind, name);
        }
    });
}

/// What GitLab reads of a file before it takes it: a dotenv's lines.
async fn check_content(upload: &Artifact) -> Result<(), Reply> {
    if upload.kind != "dotenv" {
        return Ok(());
    }
    let bad = || Reply::message(400, "400 Bad request - Invalid Format");
    let bytes = fs::read(&upload.path).await.map_err(|_| bad())?;
    crate::gitlab::dotenv::check(&bytes).map_err(|_| bad())
}

/// Answers a download of a job's archive.
pub(super) async fn download(lab: &Lab, id: u64, request: &Request<Incoming>) -> Response<OutBody> {
    let query = route::query(request);
    let token = route::job_token(request, &query).unwrap_or_default();
    let artifact = match lab.with(|gitlab, now| gitlab.download(id, &token, now)) {
        Ok(artifact) => artifact,
        Err(reply) => return respond(reply),
    };
    let direct = query
        .get("direct_download")
        .is_some_and(|value| value == "true");
    if direct && lab.look(|gitlab, _| gitlab.settings.direct_download) {
        let link = lab.look(|_, now| lab.faults.elsewhere.link(&artifact, now));
        let text = "500 Internal Server Error - no object store listens";
        return respond(match link {
            Some(link) => Reply::empty(302).header("Location", link),
            None => Reply::message(500, text),
        });
    }
    let Ok(file) = fs::File::open(&artifact.path).await else {
        return respond(Reply::message(
            500,
            "500 Internal Server Error - Missing file",
        ));
    };
    let mut response = respond(
        Reply::empty(200)
            .header("Content-Type", "application/zip")
            .header("Content-Length", artifact.size.to_string())
            .header(
                "Content-Disposition",
                "attachment; filename=\"artifacts.zip\"",
            )
            .header("Content-Transfer-Encoding", "binary"),
    );
    *response.body_mut() = body::stream(file);
    response
}
