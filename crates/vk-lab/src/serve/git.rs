//! Git over smart HTTP: `git http-backend` as a CGI program, reading only, for the tokens of
//! running jobs of the same project.

mod lfs;

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::OwnedSemaphorePermit;

use super::body::{self, OutBody, respond};
use super::lab::Lab;
use crate::gitlab::Reply;

/// Longest head that the CGI program may print.
const MAX_HEAD: u64 = 16 << 10;
/// Most bytes of one request's body (what a fetch has and wants).
const MAX_BODY: u64 = 64 << 20;

/// Answers a request below a repository's path.
pub(super) async fn answer(lab: &Arc<Lab>, request: Request<Incoming>) -> Response<OutBody> {
    let path = request.uri().path().to_owned();
    let Some((project, service)) = path.trim_start_matches('/').split_once(".git/") else {
        return respond(Reply::message(404, "404 Not Found"));
    };
    let query = request.uri().query().unwrap_or_default();
    if query.contains("git-receive-pack") || service == "git-receive-pack" {
        return respond(Reply::forbidden(Some(
            "this repository is for reading only",
        )));
    }
    let (repository, source) = match repository_for(lab, &request, project) {
        Ok(found) => found,
        Err(reply) => return respond(reply),
    };
    if lfs::is_lfs(service) {
        return lfs::answer(lab, request, project, &source, service).await;
    }
    match (request.method(), service) {
        (&Method::GET, "info/refs") if query.contains("service=git-upload-pack") => {}
        (&Method::POST, "git-upload-pack") => {}
        _ => return respond(Reply::message(404, "404 Not Found")),
    }
    let service = service.to_owned();
    match backend(lab, request, repository, &service).await {
        Ok(response) => response,
        Err(error) => respond(Reply::message(
            500,
            &format!("500 git http-backend: {error}"),
        )),
    }
}

/// Who asks, and for what: basic authentication with a running job's token. The repository, and
/// what it is a copy of.
fn repository_for(
    lab: &Lab,
    request: &Request<Incoming>,
    project: &str,
) -> Result<(PathBuf, PathBuf), Reply> {
    let denied = || {
        Reply::message(401, "HTTP Basic: Access denied")
            .header("WWW-Authenticate", "Basic realm=\"GitLab\"")
    };
    let header = request
        .headers()
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    let encoded = header
        .and_then(|text| text.strip_prefix("Basic "))
        .ok_or_else(denied)?;
    let decoded = STANDARD.decode(encoded.trim()).map_err(|_| denied())?;
    let text = String::from_utf8(decoded).map_err(|_| denied())?;
    let (user, token) = text.split_once(':').ok_or_else(denied)?;
    if user != "gitlab-ci-token" {
        return Err(denied());
    }
    lab.look(|gitlab, now| {
        let job = gitlab.running_job_of(token, now).ok_or_else(denied)?;
        let own = gitlab.project_of(job).map(|own| own.path.as_str());
        let asked = gitlab.project(Some(project)).filter(|asked| {
            let reads = own.is_some_and(|own| own == asked.path || asked.readers.contains(own));
            reads && !asked.deleted
        });
        asked
            .map(|asked| (asked.repository.clone(), asked.source.clone()))
            .ok_or_else(|| Reply::message(404, "404 Not Found"))
    })
}

async fn backend(
    lab: &Arc<Lab>,
    request: Request<Incoming>,
    repository: PathBuf,
    service: &str,
) -> std::io::Result<Response<OutBody>> {
    let slot = Arc::clone(&lab.git_slots)
        .acquire_owned()
        .await
        .map_err(std::io::Error::other)?;
    let mut command = lab.git.command(&repository);
    let header = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    command
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", &repository)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", format!("/{service}"))
        .env("REQUEST_METHOD", request.method().as_str())
        .env("QUERY_STRING", request.uri().query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REMOTE_USER", "gitlab-ci-token")
        .stdin(Stdio::piped())
        .stderr(Stdio::null());
    let hidden = lab.look(|gitlab, now| gitlab.hidden_refs(now));
    command.env("GIT_CONFIG_COUNT", hidden.len().to_string());
    for (at, name) in hidden.iter().enumerate() {
        command
            .env(format!("GIT_CONFIG_KEY_{at}"), "transfer.hideRefs")
            .env(format!("GIT_CONFIG_VALUE_{at}"), name);
    }
    let length = header("content-length");
    if !length.is_empty() {
        command.env("CONTENT_LENGTH", length);
    }
    let mut child = command.spawn()?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(std::io::Error::other("no pipes to git"));
    };
    tokio::spawn(feed(request.into_body(), input));
    let mut output = BufReader::new(output);
    let mut response = head(&mut output).await?;
    *response.body_mut() = body::stream(Running {
        output,
        _child: child,
        _slot: slot,
    });
    Ok(response)
}

/// Gives the request's body to the program. Either side may stop first; the other then sees it.
async fn feed(body: Incoming, mut input: ChildStdin) {
    let mut data = std::pin::pin!(body::data(body));
    let mut sent = 0_u64;
    while let Some(Ok(part)) = data.next().await {
        sent += part.len() as u64;
        if sent > MAX_BODY || input.write_all(&part).await.is_err() {
            return;
        }
    }
    // Its end of input comes with the drop.
    let _ = input.shutdown().await;
}

/// Reads the program's head: header lines, `Status` among them, up to an empty line.
async fn head(output: &mut BufReader<ChildStdout>) -> std::io::Result<Response<OutBody>> {
    let mut response = Response::new(body::full(""));
    let mut limited = output.take(MAX_HEAD);
    loop {
        let mut line = String::new();
        if limited.read_line(&mut line).await? == 0 {
            return Err(std::io::Error::other("its head ends early or is too long"));
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(response);
        }
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        if name.eq_ignore_ascii_case("status") {
            let code = value
                .split(' ')
                .next()
                .and_then(|code| code.parse::<u16>().ok());
            *response.status_mut() = code
                .and_then(|code| StatusCode::from_u16(code).ok())
                .unwrap_or(StatusCode::BAD_GATEWAY);
            continue;
        }
        let name = hyper::header::HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value.parse()) {
            response.headers_mut().insert(name, value);
        }
    }
}

/// The program's output; dropping it ends the program.
struct Running {
    output: BufReader<ChildStdout>,
    _child: Child,
    _slot: OwnedSemaphorePermit,
}

impl tokio::io::AsyncRead for Running {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.output).poll_read(context, buffer)
    }
}
