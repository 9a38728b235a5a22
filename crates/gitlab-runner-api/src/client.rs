//! The HTTP client below all endpoints.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Method, RequestBuilder, Response};
use serde::Serialize;
use vk_hub_proto::Secret;

use crate::answer::{Headers, Outcome};
use crate::base_url::BaseUrl;
use crate::features::Info;
use crate::leaf::Leaf;
use crate::observe::{Endpoint, Observer};
use crate::response::JobRequestOutcome;
use crate::retry::Retry;

/// A connection, TLS aside, is made within this.
const CONNECT: Duration = Duration::from_secs(30);
/// A pause in an answer that ends it.
const READ: Duration = Duration::from_secs(600);
/// A whole request, body and all.
const WHOLE: Duration = Duration::from_secs(3600);
/// A job request, from the first byte to the last (ADM-11).
const JOB_REQUEST: Duration = Duration::from_secs(60);
/// The largest answer read: GitLab's job responses are far smaller.
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;

/// Who speaks, in every request.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The runner's token.
    pub token: Secret,
    /// The daemon's system ID (GL-02).
    pub system_id: String,
    /// What it is and can do.
    pub info: Info,
}

/// Files of TLS, as configured.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// Certificates trusted beside the system's.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key, for a GitLab that wants one.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// A client that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} holds no usable {what}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why not.
        #[source]
        source: reqwest::Error,
    },
    /// The host has no certificates of authorities, and GitLab is spoken to by https.
    #[error(
        "{base} cannot be spoken to, since this host has no certificates of authorities: install \
         the package ca-certificates, or name a file with GitLab's CA (tls_ca_file)"
    )]
    NoAuthorities {
        /// GitLab.
        base: String,
        /// What the TLS library says.
        source: reqwest::Error,
    },
    /// TLS or the client could not be set up.
    #[error("the HTTP client cannot be set up")]
    Build(#[source] reqwest::Error),
}

/// A runner's client of one GitLab.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: BaseUrl,
    identity: Identity,
    leaf: Leaf,
    observer: Option<Observer>,
}

/// Whose token goes into the header.
#[derive(Clone, Copy)]
pub(crate) enum Auth<'a> {
    /// The runner's.
    Runner,
    /// A job's (CRED-05).
    Job(&'a Secret),
}

/// A request with a JSON body.
pub(crate) struct JsonRequest<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) auth: Auth<'a>,
    pub(crate) endpoint: Endpoint,
    pub(crate) retry: Retry,
    pub(crate) within: Option<Duration>,
}

impl Client {
    /// A client of the GitLab at `base`. HTTP/1.1 alone is spoken, redirects are followed up to
    /// ten times and never carry a token to another origin.
    ///
    /// # Errors
    /// A file of TLS cannot be used.
    pub fn new(base: BaseUrl, identity: Identity, tls: &TlsFiles) -> Result<Client, ClientError> {
        let agent = format!("vk-gitlab {} (linux/amd64)", identity.info.version());
        let certificates = match &tls.ca {
            Some(path) => {
                let parsed = Certificate::from_pem_bundle(&read(path)?);
                parsed.map_err(content(path, "certificate in PEM"))?
            }
            None => Vec::new(),
        };
        let own = match &tls.client {
            Some((certificate, key)) => {
                let mut pem = read(certificate)?;
                pem.push(b'\n');
                pem.extend(read(key)?);
                let own = reqwest::Identity::from_pem(&pem);
                Some(own.map_err(content(certificate, "certificate and key in PEM"))?)
            }
            None => None,
        };
        let builder = || {
            let mut builder = reqwest::Client::builder()
                .user_agent(agent.clone())
                .http1_only()
                .tls_info(true)
                .connect_timeout(CONNECT)
                .read_timeout(READ)
                .timeout(WHOLE)
                .pool_idle_timeout(Duration::from_secs(90))
                .redirect(same_origin_redirects());
            if !certificates.is_empty() {
                builder = builder.tls_certs_merge(certificates.clone());
            }
            if let Some(own) = &own {
                builder = builder.identity(own.clone());
            }
            builder
        };
        let http = build(builder, &base)?;
        Ok(Client {
            http,
            base,
            identity,
            leaf: Leaf::default(),
            observer: None,
        })
    }

    /// Leaves the certificate that GitLab shows here, too.
    #[must_use]
    pub fn with_leaf(self, leaf: Leaf) -> Client {
        Client { leaf, ..self }
    }

    /// The same client, whose answers are told.
    #[must_use]
    pub fn with_observer(self, observer: Observer) -> Client {
        let observer = Some(observer);
        Client { observer, ..self }
    }

    /// Who speaks.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where GitLab is.
    #[must_use]
    pub const fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// Asks for a job, once and within 60 s (ADM-11, GL-03, GL-65).
    pub async fn request_job(&self, last_update: Option<&str>) -> JobRequestOutcome {
        #[derive(Serialize)]
        struct Body<'a> {
            info: &'a Info,
            token: &'a str,
            system_id: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            last_update: Option<&'a str>,
        }
        let body = Body {
            info: &self.identity.info,
            token: self.identity.token.expose(),
            system_id: &self.identity.system_id,
            last_update,
        };
        let request = JsonRequest {
            method: Method::POST,
            path: "jobs/request",
            auth: Auth::Runner,
            endpoint: Endpoint::JobRequest,
            retry: Retry::ONCE,
            within: Some(JOB_REQUEST),
        };
        let (outcome, body) = self.json(request, &body).await;
        JobRequestOutcome::read(outcome, &body)
    }

    /// Sends a JSON body; what is read of the answer comes with it. Without a status that is the
    /// beginning of a 201's that did not come whole.
    pub(crate) async fn json<B: Serialize>(
        &self,
        request: JsonRequest<'_>,
        body: &B,
    ) -> (Outcome, Vec<u8>) {
        let bytes = match serde_json::to_vec(body) {
            Ok(bytes) => bytes,
            Err(error) => return (failed(&error.to_string()), Vec::new()),
        };
        let build = |client: &Client| {
            let builder = client.request(request.method.clone(), request.path, request.auth)?;
            let builder = builder.header("content-type", "application/json");
            // As gitlab-runner does: only where the answer's body is read.
            let builder = match request.endpoint {
                Endpoint::Verify | Endpoint::JobRequest => {
                    builder.header("accept", "application/json")
                }
                Endpoint::JobUpdate | Endpoint::Trace => builder,
            };
            Some(builder.body(bytes.clone()))
        };
        let how = (request.endpoint, request.retry, request.within);
        self.send(build, how).await
    }

    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        auth: Auth<'_>,
    ) -> Option<RequestBuilder> {
        let url = self.base.endpoint(path)?;
        let (name, token) = match auth {
            Auth::Runner => ("runner-token", &self.identity.token),
            Auth::Job(token) => ("job-token", token),
        };
        let mut headers = HeaderMap::new();
        if !token.is_empty() {
            let mut value = HeaderValue::from_str(token.expose()).ok()?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        Some(self.http.request(method, url).headers(headers))
    }

    /// Sends a request, and again as far as `retry` goes. The same request ID goes with each try.
    pub(crate) async fn send(
        &self,
        build: impl Fn(&Client) -> Option<RequestBuilder>,
        (endpoint, retry, within): (Endpoint, Retry, Option<Duration>),
    ) -> (Outcome, Vec<u8>) {
        let id = format!("{:032x}", drawn());
        let mut attempt = 1;
        loop {
            let Some(request) = build(self) else {
                return (failed("the request cannot be written as HTTP"), Vec::new());
            };
            let request = request.header("x-request-id", &id);
            let request = match within {
                Some(within) => request.timeout(within),
                None => request,
            };
            let (outcome, body) = exchange(request, &self.leaf).await;
            if let Some(observer) = &self.observer {
                observer.answered(endpoint, outcome.status);
            }
            attempt += 1;
            let status = outcome.status.unwrap_or_default();
            let spread = (drawn() % 1000) as f64 / 1000.0;
            match retry.pause(attempt, status, outcome.headers.retry_after, spread) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return (outcome, body),
            }
        }
    }
}

/// A client of `base`. A host without certificates of authorities has what plain HTTP needs.
pub(crate) fn build(
    builder: impl Fn() -> reqwest::ClientBuilder,
    base: &BaseUrl,
) -> Result<reqwest::Client, ClientError> {
    let source = match builder().build() {
        Ok(client) => return Ok(client),
        Err(error) => error,
    };
    // Whatever else is wrong with it is wrong without them, too.
    let Ok(client) = builder().tls_certs_only([]).build() else {
        return Err(ClientError::Build(source));
    };
    let base = base.origin();
    match base.starts_with("https:") {
        true => Err(ClientError::NoAuthorities { base, source }),
        false => Ok(client),
    }
}

async fn exchange(request: RequestBuilder, leaf: &Leaf) -> (Outcome, Vec<u8>) {
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) => {
            let sent = !error.is_connect() && !error.is_builder();
            return (
                Outcome {
                    sent,
                    ..failed(&chain(&error))
                },
                Vec::new(),
            );
        }
    };
    let shown = response.extensions().get::<reqwest::tls::TlsInfo>();
    if let Some(der) = shown.and_then(reqwest::tls::TlsInfo::peer_certificate) {
        leaf.saw(der);
    }
    let status = response.status().as_u16();
    let headers = Headers::read(response.headers(), SystemTime::now());
    match body(&mut response).await {
        (body, None) => {
            let message = if status < 300 {
                String::new()
            } else {
                message(&body)
            };
            (
                Outcome {
                    status: Some(status),
                    headers,
                    message,
                    sent: true,
                },
                body,
            )
        }
        (begun, Some(why)) => {
            let outcome = Outcome {
                sent: true,
                ..failed(&why)
            };
            // What was begun may say which job was handed out, and nothing else is of use.
            let begun = if status == 201 { begun } else { Vec::new() };
            (outcome, begun)
        }
    }
}

/// The body, and why it is not whole: an answer that breaks off is none (ADM-38).
async fn body(response: &mut Response) -> (Vec<u8>, Option<String>) {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(None) => return (body, None),
            Ok(Some(chunk)) if body.len() + chunk.len() > LARGEST_ANSWER => {
                let why = format!("the answer is larger than {LARGEST_ANSWER} bytes");
                return (body, Some(why));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Err(error) => return (body, Some(chain(&error))),
        }
    }
}

/// What a refusal's body says: GitLab's `message`, else nothing.
pub(crate) fn message(body: &[u8]) -> String {
    let json: Result<serde_json::Value, _> = serde_json::from_slice(body);
    let text = match json.as_ref().ok().and_then(|json| json.get("message")) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    text.chars()
        .filter(|c| !c.is_control())
        .take(1024)
        .collect()
}

fn failed(why: &str) -> Outcome {
    Outcome {
        message: why.chars().take(1024).collect(),
        ..Outcome::default()
    }
}

/// An error with its causes, without the URL, which may hold what is not for logs.
pub(crate) fn chain(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() {
        "timed out"
    } else {
        "no answer"
    }
    .to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Follows redirects within one origin; another origin's gets no token, so it is not followed.
fn same_origin_redirects() -> reqwest::redirect::Policy {
    reqwest::redirect::Policy::custom(|attempt| {
        let from = attempt.previous().first().map(reqwest::Url::origin);
        if attempt.previous().len() > 10 || from != Some(attempt.url().origin()) {
            attempt.stop()
        } else {
            attempt.follow()
        }
    })
}

/// A number that no other process draws at the same time: for request IDs and the spread of waits,
/// which need no secrecy.
pub(crate) fn drawn() -> u128 {
    use std::hash::{BuildHasher as _, RandomState};
    let half = || u128::from(RandomState::new().hash_one(SystemTime::now()));
    half() << 64 | half()
}

fn read(path: &Path) -> Result<Vec<u8>, ClientError> {
    std::fs::read(path).map_err(|source| ClientError::Read {
        path: path.to_owned(),
        source,
    })
}

fn content(path: &Path, what: &'static str) -> impl FnOnce(reqwest::Error) -> ClientError {
    let path = path.to_owned();
    move |source| ClientError::Content { path, what, source }
}
