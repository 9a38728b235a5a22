//! Calls to an LFS server. The job's token goes to the endpoint's own origin alone.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD as BASE64;
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Certificate, Client, ClientBuilder, RequestBuilder, Response, Url, redirect};
use vk_hub_proto::Secret;
use vk_oci::Hasher;

use super::batch::{self, Action};
use super::pointer::Pointer;
use crate::git::foreign::{self, Looked};
use crate::git::host::GitError;

const CONNECT: Duration = Duration::from_secs(30);
/// A pause in an answer that ends it.
const READ: Duration = Duration::from_secs(300);
/// The largest batch response read.
const ANSWER_MAX: usize = 4 << 20;
const REDIRECTS_MAX: u32 = 10;
/// Other servers that are kept in mind.
const OTHERS_MAX: usize = 64;
/// Tries of one object, and the wait between them.
const TRIES: u32 = 3;
const WAIT: Duration = Duration::from_secs(1);
/// What LFS calls are written in.
const KIND: &str = "application/vnd.git-lfs+json";

/// A client with a job's token.
pub(super) struct LfsClient<'a> {
    /// To the job's own server.
    http: Client,
    token: &'a Secret,
    ca_pem: Option<&'a str>,
    /// The job's own server.
    own: String,
    /// To other servers, each at the addresses that were looked at.
    others: Mutex<HashMap<String, Client>>,
}

impl<'a> LfsClient<'a> {
    /// `own` is the origin of the job's own server.
    pub(super) fn new(
        token: &'a Secret,
        ca_pem: Option<&'a str>,
        own: String,
    ) -> Result<Self, GitError> {
        let http = build(|| builder(ca_pem))?;
        Ok(LfsClient {
            http,
            token,
            ca_pem,
            own,
            others: Mutex::default(),
        })
    }

    /// The client for a URL: of another server than the job's own, to the addresses that were found
    /// fit, and to those alone, whatever its name means a moment later.
    async fn client_for(&self, own: &Url, url: &Url) -> Result<Client, GitError> {
        if url.origin() == own.origin() {
            return Ok(self.http.clone());
        }
        let origin = url.origin().ascii_serialization();
        let known = |others: &HashMap<_, Client>| others.get(&origin).cloned();
        if let Some(client) = known(&self.others()) {
            return Ok(client);
        }
        let looked = foreign::look(&origin, &self.own).await;
        let looked = looked.map_err(|why| GitError::Lfs(format!("{}: {why}", shown(url))))?;
        let client = build(|| {
            let mut builder = builder(self.ca_pem)?;
            if let Some(Looked { host, port, at }) = &looked {
                let at: Vec<_> = at.iter().map(|ip| SocketAddr::new(*ip, *port)).collect();
                builder = builder.resolve_to_addrs(host, &at);
            }
            Ok(builder)
        })?;
        let mut others = self.others();
        if others.len() >= OTHERS_MAX {
            others.clear();
        }
        others.insert(origin, client.clone());
        Ok(client)
    }

    fn others(&self) -> MutexGuard<'_, HashMap<String, Client>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a header has the job's token in it, as it is or as basic authentication has it.
    fn is_of_the_token(&self, value: &str) -> bool {
        let token = self.token.expose();
        let words = value.split([' ', ',', '=']);
        let decoded = words.filter_map(|word| BASE64.decode(word.trim_end_matches('=')).ok());
        let has = |text: &str| !token.is_empty() && text.contains(token);
        has(value)
            || decoded
                .into_iter()
                .any(|text| has(&String::from_utf8_lossy(&text)))
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
            let mut request = self.client_for(&own, &url).await?.get(url.clone());
            if url.origin() == first.origin() {
                for (name, value) in &action.header {
                    if url.origin() != own.origin() && self.is_of_the_token(value) {
                        return Err(GitError::Lfs(format!(
                            "{}: the server would have the job's token sent to another server",
                            shown(&url)
                        )));
                    }
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

fn builder(ca_pem: Option<&str>) -> Result<ClientBuilder, GitError> {
    let mut builder = Client::builder()
        .user_agent("git-lfs/3.3.0 (vk)")
        .connect_timeout(CONNECT)
        .read_timeout(READ)
        .redirect(redirect::Policy::none());
    if let Some(pem) = ca_pem {
        let certificates = Certificate::from_pem_bundle(pem.as_bytes()).map_err(lfs)?;
        builder = builder.tls_certs_merge(certificates);
    }
    Ok(builder)
}

/// A host without certificates of authorities has what plain HTTP needs.
fn build(builder: impl Fn() -> Result<ClientBuilder, GitError>) -> Result<Client, GitError> {
    let error = match builder()?.build() {
        Ok(client) => return Ok(client),
        Err(error) => error,
    };
    let without = builder()?.tls_certs_only([]).build();
    without.map_err(|_| lfs(error))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::git::test_server::GitServer;

    fn action(href: String, header: &[(&str, &str)]) -> Action {
        let header = header
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Action {
            href,
            header: header.collect::<BTreeMap<_, _>>(),
        }
    }

    #[tokio::test]
    async fn where_an_object_is_said_to_be_is_looked_at_first() {
        let token = Secret::from("the-token");
        let own = "https://192.0.2.10/g/p.git/info/lfs";
        let client = LfsClient::new(&token, None, "https://192.0.2.10".to_owned()).unwrap();
        for (href, why) in [
            ("https://127.0.0.1:1/x", "an address of the node"),
            ("https://localhost:1/x", "an address of the node"),
            ("https://[::ffff:127.0.0.1]:1/x", "an address of the node"),
            ("https://0.0.0.0:1/x", "an address of the node"),
            ("https://169.254.169.254/x", "where no server is"),
            ("http://198.51.100.1/x", "not HTTPS"),
        ] {
            let refused = client.get(own, &action(href.to_owned(), &[])).await;
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(why), "{href}: {error}");
        }
    }

    #[tokio::test]
    async fn the_jobs_token_is_sent_to_no_other_server_whatever_its_own_says() {
        let dir = tempfile::tempdir().unwrap();
        let other = GitServer::start(dir.path().to_owned(), true);
        let token = Secret::from("the-token");
        // A trial: both are on this machine.
        let own = "http://127.0.0.1:9";
        let client = LfsClient::new(&token, None, own.to_owned()).unwrap();
        // `gitlab-ci-token:the-token`
        let basic = "Basic Z2l0bGFiLWNpLXRva2VuOnRoZS10b2tlbg==";
        for value in [basic, "Bearer the-token", "the-token"] {
            let action = action(other.url("x"), &[("Authorization", value)]);
            let error = client.get(own, &action).await.unwrap_err().to_string();
            assert!(error.contains("the job's token"), "{error}");
            assert!(!error.contains("the-token"), "{error}");
        }
        assert!(other.requests().is_empty());
        // What is another's own goes there.
        let fine = action(other.url("x"), &[("X-Signature", "abc")]);
        let _ = client.get(own, &fine).await;
        assert_eq!(other.requests().len(), 1);
    }
}
