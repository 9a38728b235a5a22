//! Calls to an LFS server. The job's token goes to the endpoint's own origin alone.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Certificate, Client, RequestBuilder, Response, Url, redirect};
use vk_hub_proto::Secret;
use vk_oci::Hasher;

use super::batch::{self, Action};
use super::pointer::Pointer;
use crate::git::host::GitError;

const CONNECT: Duration = Duration::from_secs(30);
/// A pause in an answer that ends it.
const READ: Duration = Duration::from_secs(300);
/// The largest batch response read.
const ANSWER_MAX: usize = 4 << 20;
const REDIRECTS_MAX: u32 = 10;
/// Tries of one object, and the wait between them.
const TRIES: u32 = 3;
const WAIT: Duration = Duration::from_secs(1);
/// What LFS calls are written in.
const KIND: &str = "application/vnd.git-lfs+json";

/// A client with a job's token.
pub(super) struct LfsClient<'a> {
    http: Client,
    token: &'a Secret,
}

impl<'a> LfsClient<'a> {
    pub(super) fn new(token: &'a Secret, ca_pem: Option<&str>) -> Result<Self, GitError> {
        let mut builder = Client::builder()
            .user_agent("git-lfs/3.3.0 (vk)")
            .connect_timeout(CONNECT)
            .read_timeout(READ)
            .redirect(redirect::Policy::none());
        if let Some(pem) = ca_pem {
            let certificates = Certificate::from_pem_bundle(pem.as_bytes()).map_err(lfs)?;
            builder = builder.tls_certs_merge(certificates);
        }
        let http = builder.build().map_err(lfs)?;
        Ok(LfsClient { http, token })
    }

    /// What the server says of objects, in their order.
    pub(super) async fn batch(
        &self,
        endpoint: &str,
        objects: &[&Pointer],
    ) -> Result<Vec<Action>, GitError> {
        let url = format!("{endpoint}/objects/batch");
        let body = batch::request(objects).to_string();
        let request = || {
            let request = self.http.post(&url).header(ACCEPT, KIND);
            self.signed(request.header(CONTENT_TYPE, KIND).body(body.clone()))
        };
        let mut tried = 1;
        let mut response = loop {
            match request().send().await {
                Ok(response) if response.status().is_success() => break response,
                Ok(response) if tried >= TRIES || !response.status().is_server_error() => {
                    let status = response.status();
                    return Err(GitError::Lfs(format!("{url} answers {status}")));
                }
                Err(error) if tried >= TRIES => return Err(lfs(error)),
                _ => {}
            }
            tried += 1;
            tokio::time::sleep(WAIT).await;
        };
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(lfs)? {
            answer.extend_from_slice(&chunk);
            if answer.len() > ANSWER_MAX {
                return Err(GitError::Lfs(format!(
                    "{url} answers more than {ANSWER_MAX} bytes"
                )));
            }
        }
        batch::read(&answer, objects).map_err(GitError::Lfs)
    }

    /// Downloads an object to a place where only whole and right ones are.
    pub(super) async fn download(
        &self,
        endpoint: &str,
        pointer: &Pointer,
        action: &Action,
        to: &Path,
    ) -> Result<(), GitError> {
        let mut tried = 1;
        loop {
            match self.fetch(endpoint, pointer, action, to).await {
                Err(GitError::Lfs(_)) if tried < TRIES => {}
                done => return done,
            }
            tried += 1;
            tokio::time::sleep(WAIT).await;
        }
    }

    async fn fetch(
        &self,
        endpoint: &str,
        pointer: &Pointer,
        action: &Action,
        to: &Path,
    ) -> Result<(), GitError> {
        let mut response = self.get(endpoint, action).await?;
        let dir = to.parent().unwrap_or(to);
        fs::create_dir_all(dir).map_err(GitError::file("make", dir))?;
        let file = tempfile::NamedTempFile::new_in(dir);
        let mut file = file.map_err(GitError::file("make a file in", dir))?;
        let (mut hasher, mut bytes) = (Hasher::default(), 0_u64);
        while let Some(chunk) = response.chunk().await.map_err(lfs)? {
            bytes += chunk.len() as u64;
            if bytes > pointer.size {
                break;
            }
            hasher.update(&chunk);
            let written = file.write_all(&chunk);
            written.map_err(GitError::file("write", file.path()))?;
        }
        let Pointer { oid, size } = pointer;
        if bytes != *size || hasher.finish().hex() != *oid {
            return Err(GitError::Lfs(format!(
                "object {oid} came with other content than its pointer says ({bytes} of {size} bytes)"
            )));
        }
        let kept = file.persist(to).map_err(|error| error.error);
        kept.map(drop).map_err(GitError::file("keep", to))
    }

    /// The object's bytes, through redirects; a header goes no further than where it was meant for.
    async fn get(&self, endpoint: &str, action: &Action) -> Result<Response, GitError> {
        let own = join(None, endpoint)?;
        let first = join(Some(&own), &action.href)?;
        let mut url = first.clone();
        for _ in 0..=REDIRECTS_MAX {
            if own.scheme() == "https" && url.scheme() != "https" {
                return Err(GitError::Lfs(format!("{} is not HTTPS", shown(&url))));
            }
            let mut request = self.http.get(url.clone());
            if url.origin() == first.origin() {
                for (name, value) in &action.header {
                    request = request.header(name, value);
                }
                let authorized = |name: &String| name.eq_ignore_ascii_case("authorization");
                if url.origin() == own.origin() && !action.header.keys().any(authorized) {
                    request = self.signed(request);
                }
            }
            let response = request.send().await.map_err(lfs)?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            let to = response.headers().get(LOCATION);
            let to = to.and_then(|value| value.to_str().ok());
            match to.filter(|_| status.is_redirection()) {
                Some(to) => url = join(Some(&url), to)?,
                None => return Err(GitError::Lfs(format!("{} answers {status}", shown(&url)))),
            }
        }
        let shown = shown(&first);
        Err(GitError::Lfs(format!(
            "{shown}: more than {REDIRECTS_MAX} redirects"
        )))
    }

    fn signed(&self, request: RequestBuilder) -> RequestBuilder {
        request.basic_auth("gitlab-ci-token", Some(self.token.expose()))
    }
}

fn join(base: Option<&Url>, url: &str) -> Result<Url, GitError> {
    let joined = Url::options().base_url(base).parse(url);
    joined.map_err(|error| GitError::Lfs(format!("the server names no URL: {error}")))
}

/// A URL without its query: object stores sign theirs.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

/// An error with its causes, on one line; without its URL, in which a query may be a key.
fn lfs(error: reqwest::Error) -> GitError {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    GitError::Lfs(text)
}
