//! One request on one connection, signed for it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use vk_hub_proto::signed::{Channel, ClientRequest, client_request};
use vk_hub_proto::{RelayId, hex, limit};

use crate::connect::{ConnectError, Connection, Dialer};
use crate::key::Key;

/// Who signs requests: the enrolled relay.
#[derive(Debug)]
pub struct Signer {
    /// Its ID.
    pub relay: RelayId,
    /// Its key.
    pub key: Key,
}

/// What the hub answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// A request without an answer: whether the hub acted on it is not known.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The request cannot be written as HTTP.
    #[error("{method} {path} is no HTTP request")]
    Malformed {
        /// The method.
        method: Method,
        /// The path and query.
        path: String,
        /// Why.
        #[source]
        source: hyper::http::Error,
    },
    /// The connection broke before the whole answer was here.
    #[error("{method} {path}: the connection to the hub broke")]
    Broken {
        /// The method.
        method: Method,
        /// The path and query.
        path: String,
        /// Why.
        #[source]
        source: hyper::Error,
    },
    /// The answer's body broke off or is larger than any the hub may give.
    #[error("{method} {path}: the hub's answer broke off or is too large")]
    Body {
        /// The method.
        method: Method,
        /// The path and query.
        path: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer in time.
    #[error("{method} {path}: no answer from the hub within {} s", limit.as_secs())]
    TooSlow {
        /// The method.
        method: Method,
        /// The path and query.
        path: String,
        /// How long was waited.
        limit: Duration,
    },
}

/// What is sent.
pub(crate) struct Outgoing<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) body: Vec<u8>,
    pub(crate) signer: Option<&'a Signer>,
    /// From the start of the dialling to the last byte of the answer.
    pub(crate) within: Duration,
}

/// Sends one request on a connection of its own (AUTH-10) and reads the whole answer.
pub(crate) async fn send(dialer: &Dialer, out: Outgoing<'_>) -> Result<Answer, RequestError> {
    let (method, path, within) = (out.method.clone(), out.path.to_owned(), out.within);
    match timeout(within, exchange(dialer, out)).await {
        Ok(answered) => answered,
        Err(_) => Err(RequestError::TooSlow {
            method,
            path,
            limit: within,
        }),
    }
}

async fn exchange(dialer: &Dialer, out: Outgoing<'_>) -> Result<Answer, RequestError> {
    let Connection { stream, channel } = dialer.dial().await?;
    let request = build(dialer, &out, channel)?;
    let broken = |source| RequestError::Broken {
        method: out.method.clone(),
        path: out.path.to_owned(),
        source,
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let driver = AbortOnDrop(tokio::spawn(connection));
    let response = sender.send_request(request).await.map_err(broken)?;
    let (head, body) = response.into_parts();
    let read = Limited::new(body, limit::OUTPUT_ANSWER_BYTES)
        .collect()
        .await;
    let body = read.map_err(|source| RequestError::Body {
        method: out.method.clone(),
        path: out.path.to_owned(),
        source,
    })?;
    drop(driver);
    Ok(Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        body: body.to_bytes(),
    })
}

/// The task that moves a connection's bytes ends with the request it serves.
struct AbortOnDrop(tokio::task::JoinHandle<Result<(), hyper::Error>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn build(
    dialer: &Dialer,
    out: &Outgoing<'_>,
    channel: Channel,
) -> Result<Request<Full<Bytes>>, RequestError> {
    let mut builder = Request::builder()
        .method(out.method.clone())
        .uri(out.path)
        .header("host", dialer.url().authority())
        .header("content-type", "application/json");
    if let Some(signer) = out.signer {
        // A clock before 1970 signs 0, and the hub's refusal then names both clocks.
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        builder = builder
            .header("vk-relay", signer.relay.to_string())
            .header("vk-time", time.to_string())
            .header("vk-signature", signature(signer, out, time, channel));
    }
    builder
        .body(Full::from(out.body.clone()))
        .map_err(|source| RequestError::Malformed {
            method: out.method.clone(),
            path: out.path.to_owned(),
            source,
        })
}

fn signature(signer: &Signer, out: &Outgoing<'_>, time: u64, channel: Channel) -> String {
    let hash = digest::digest(&digest::SHA256, &out.body);
    let mut body_sha256 = [0; 32];
    for (to, from) in body_sha256.iter_mut().zip(hash.as_ref()) {
        *to = *from;
    }
    let message = client_request(&ClientRequest {
        relay: signer.relay,
        method: out.method.as_str(),
        path: out.path,
        body_sha256: &body_sha256,
        time,
        channel,
    });
    hex::encode(&signer.key.sign(&message).0)
}
