//! One request: tries, credentials, redirects.

use std::path::Path;
use std::time::Duration;

use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION, RANGE, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode, Url};

use crate::answer;
use crate::challenge::Challenge;
use crate::error::Error;
use crate::near::{NearAddress, cause};
use crate::origin::{authority, is_loopback, same_origin};
use crate::reference::Reference;
use crate::token::{Authorization, Rights};

use super::Client;

/// Redirects followed.
const HOPS_MAX: usize = 10;
/// The longest wait between two tries, whatever a registry asks for.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What to ask of an image's repository.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// Below the repository.
    pub(crate) path: &'a str,
    pub(crate) accept: Option<&'static str>,
    /// The first byte wanted; everything for 0.
    pub(crate) from: u64,
    /// What the request is part of.
    pub(crate) rights: Rights,
    pub(crate) payload: Payload<'a>,
}

/// What a request carries.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    Nothing,
    Document {
        media_type: &'a str,
        bytes: &'a [u8],
    },
    File {
        path: &'a Path,
        length: u64,
    },
}

impl<'a> Ask<'a> {
    pub(crate) fn manifest(path: &'a str, accept: &'static str) -> Self {
        Self {
            method: Method::GET,
            path,
            accept: Some(accept),
            from: 0,
            rights: Rights::Pull,
            payload: Payload::Nothing,
        }
    }

    pub(crate) fn blob(path: &'a str, from: u64) -> Self {
        Self {
            method: Method::GET,
            path,
            accept: None,
            from,
            rights: Rights::Pull,
            payload: Payload::Nothing,
        }
    }

    /// A part of a push.
    pub(crate) fn push(method: Method, path: &'a str, payload: Payload<'a>) -> Self {
        Self {
            method,
            path,
            accept: None,
            from: 0,
            rights: Rights::Push,
            payload,
        }
    }
}

impl Client {
    /// Asks until there is an answer of success or one that is final.
    pub(crate) async fn send(&self, image: &Reference, ask: &Ask<'_>) -> Result<Response, Error> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let result = self.send_once(image, ask).await;
            let last = attempt >= self.config.attempts;
            match result {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) if !last && is_transient(response.status()) => {
                    self.back_off(attempt, retry_after(&response)).await;
                }
                Ok(response) => return Err(self.refusal(image, response).await),
                Err(Error::Unreachable { .. }) if !last => self.back_off(attempt, None).await,
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) async fn back_off(&self, attempt: u32, asked: Option<Duration>) {
        let doubled = self
            .config
            .back_off
            .saturating_mul(1 << attempt.saturating_sub(1).min(6));
        tokio::time::sleep(
            asked
                .unwrap_or(doubled)
                .max(jittered(doubled))
                .min(WAIT_MAX),
        )
        .await;
    }

    async fn send_once(&self, image: &Reference, ask: &Ask<'_>) -> Result<Response, Error> {
        let url = self.url(image, ask)?;
        self.send_authorized(image, ask, url).await
    }

    /// One try, and a second one with a fresh authorization where the first is not let in. An
    /// address of another origin than the registry's gets none.
    pub(crate) async fn send_authorized(
        &self,
        image: &Reference,
        ask: &Ask<'_>,
        url: Url,
    ) -> Result<Response, Error> {
        let own = same_origin(&url, &self.url(image, ask)?);
        let known = self.tokens.get(image, ask.rights).filter(|_| own);
        let response = self.follow(image, ask, url.clone(), known.as_ref()).await?;
        if response.status() != StatusCode::UNAUTHORIZED || !own {
            return Ok(response);
        }
        let challenges = response.headers().get_all(WWW_AUTHENTICATE).iter();
        let Some(challenge) = Challenge::choose(challenges.filter_map(|value| value.to_str().ok()))
        else {
            return Ok(response);
        };
        let fresh = self
            .authorize(image, response.url(), challenge, ask.rights)
            .await?;
        let Some(fresh) = fresh else {
            return Ok(response);
        };
        let response = self.follow(image, ask, url, Some(&fresh)).await?;
        if response.status().is_success() {
            self.tokens.put(image, ask.rights, fresh);
        }
        Ok(response)
    }

    pub(crate) fn url(&self, image: &Reference, ask: &Ask<'_>) -> Result<Url, Error> {
        let base = self.origins.base(image.registry());
        let path = format!("{}/{}", image.repository(), ask.path);
        base.and_then(|base| base.join(&path).ok())
            .ok_or_else(|| Error::Refused {
                image: image.familiar(),
                what: format!("{} is no address", image.registry()),
            })
    }

    /// Sends, and follows redirects; the authorization goes to the first origin alone.
    pub(super) async fn follow(
        &self,
        image: &Reference,
        ask: &Ask<'_>,
        first: Url,
        authorization: Option<&Authorization>,
    ) -> Result<Response, Error> {
        let connectors = self.connectors()?;
        let mut url = first.clone();
        let registry = self.url(image, ask)?;
        for _ in 0..=HOPS_MAX {
            if url.scheme() == "https" && !connectors.verifies {
                return Err(Error::Setup {
                    what: format!(
                        "{} shows a certificate, and this host has none of authorities to verify \
                         it by: install the package ca-certificates",
                        authority(&url)
                    ),
                });
            }
            let near = |near: NearAddress| Error::Near {
                image: image.familiar(),
                at: authority(&url),
                address: near.address,
            };
            // A registry that is named may send us on to its own host: it is the owner's.
            let is_named = |url: &Url| self.config.near.trusts(url);
            let is_sent_on = is_loopback(&url) && is_loopback(&registry) && is_named(&registry);
            if !is_sent_on && let Some(refused) = self.config.near.refused(&url) {
                return Err(near(refused));
            }
            let http = match &connectors.elsewhere {
                _ if is_loopback(&url) => &connectors.local,
                Some(elsewhere) if !is_named(&url) => elsewhere,
                _ => &connectors.http,
            };
            let mut request = http.request(ask.method.clone(), url.clone());
            if let Some(accept) = ask.accept {
                request = request.header(ACCEPT, accept);
            }
            if ask.from > 0 {
                request = request.header(RANGE, format!("bytes={}-", ask.from));
            }
            let header = authorization
                .filter(|_| same_origin(&first, &url))
                .and_then(Authorization::header);
            if let Some(header) = header {
                request = request.header(AUTHORIZATION, header);
            }
            if let Some(limit) = self.config.request_timeout {
                request = request.timeout(limit);
            }
            let request = loaded(request, ask.payload)
                .await
                .map_err(|source| Error::Local {
                    image: image.familiar(),
                    source,
                })?;
            let response = request.send().await.map_err(|error| match cause(&error) {
                Some(refused) => near(refused),
                None => unreachable(image, &url, error),
            })?;
            let Some(next) = redirect(&response, &ask.method) else {
                return Ok(response);
            };
            self.origins
                .may_go(&url, &next)
                .map_err(|why| Error::Refused {
                    image: image.familiar(),
                    what: format!(
                        "{} sends us to {}: {why}",
                        authority(&url),
                        authority(&next)
                    ),
                })?;
            url = next;
        }
        Err(Error::Refused {
            image: image.familiar(),
            what: format!("{} redirects more than {HOPS_MAX} times", authority(&first)),
        })
    }

    /// The error of an answer that is not one of success.
    pub(crate) async fn refusal(&self, image: &Reference, response: Response) -> Error {
        let (status, at) = (response.status(), authority(response.url()));
        let with_credential = self.config.keychain.find(image).is_some();
        let image = image.familiar();
        match status {
            StatusCode::NOT_FOUND => Error::NotFound { image },
            StatusCode::TOO_MANY_REQUESTS => Error::RateLimited {
                image,
                registry: at,
            },
            status if is_denial(status) => {
                let message = answer::message(response).await;
                Error::Denied {
                    image,
                    by: at,
                    with_credential,
                    message,
                }
            }
            status => {
                let message = answer::message(response).await;
                Error::Answer {
                    image,
                    at,
                    status: status.as_u16(),
                    message,
                }
            }
        }
    }
}

pub(super) fn is_denial(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

pub(crate) fn is_transient(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
        )
}

/// A request with what it carries.
async fn loaded(
    request: RequestBuilder,
    payload: Payload<'_>,
) -> Result<RequestBuilder, std::io::Error> {
    Ok(match payload {
        Payload::Nothing => request,
        Payload::Document { media_type, bytes } => request
            .header(CONTENT_TYPE, media_type)
            .body(bytes.to_vec()),
        Payload::File { path, length } => {
            let file = tokio::fs::File::open(path).await?;
            request
                .header(CONTENT_TYPE, "application/octet-stream")
                .header(CONTENT_LENGTH, length)
                .body(Body::from(file))
        }
    })
}

/// Where a redirect leads; relative ones are relative to where they come from. What changes
/// something is repeated only where the registry says so by a 307 or 308.
fn redirect(response: &Response, method: &Method) -> Option<Url> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match response.status().as_u16() {
        307 | 308 => {}
        301..=303 if reads => {}
        _ => return None,
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    response.url().join(location).ok()
}

pub(crate) fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = |value: &HeaderValue| value.to_str().ok()?.trim().parse().ok();
    response
        .headers()
        .get(RETRY_AFTER)
        .and_then(seconds)
        .map(Duration::from_secs)
}

/// Between half and all of a wait, so that many clients do not come back at once.
fn jittered(wait: Duration) -> Duration {
    let mut byte = [0];
    let share = match aws_lc_rs::rand::fill(&mut byte) {
        Ok(()) => u32::from(byte[0]),
        Err(_) => 255,
    };
    wait / 2 + wait * share / 510
}

/// A failed connection, without the URL: a redirect's may hold a signature.
pub(crate) fn unreachable(image: &Reference, url: &Url, error: reqwest::Error) -> Error {
    Error::Unreachable {
        image: image.familiar(),
        at: authority(url),
        source: error.without_url(),
    }
}
