//! A small HTTP server whose answers a test decides, and which lets a test wait for what came.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Method and path, without a query.
    pub(crate) fn what(&self) -> String {
        let path = self.path.split('?').next().unwrap();
        format!("{} {path}", self.method)
    }
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Reply {
        Reply {
            status,
            ..Reply::default()
        }
    }

    pub(crate) fn json(status: u16, body: &Value) -> Reply {
        Reply {
            body: serde_json::to_vec(body).unwrap(),
            ..Reply::status(status)
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "numbers and texts alike")]
    pub(crate) fn with(mut self, name: &'static str, value: impl std::fmt::Display) -> Reply {
        self.headers.push((name, value.to_string()));
        self
    }
}

/// State that tests look at and change, and whose changes wake whoever waits.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    state: Mutex<T>,
    version: watch::Sender<u64>,
}

impl<T> Watched<T> {
    pub(crate) fn new(state: T) -> Arc<Watched<T>> {
        Arc::new(Watched {
            state: Mutex::new(state),
            version: watch::Sender::new(0),
        })
    }

    /// Changes it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.state.lock().unwrap());
        self.version.send_modify(|version| *version += 1);
        result
    }

    /// Looks at it.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.state.lock().unwrap())
    }

    /// Waits until `look` finds something.
    pub(crate) async fn found<R>(&self, mut look: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut version = self.version.subscribe();
        loop {
            if let Some(result) = look(&mut self.state.lock().unwrap()) {
                return result;
            }
            version.changed().await.unwrap();
        }
    }

    /// Waits until it is so, for a test: not for ever.
    pub(crate) async fn until(&self, what: &str, mut is: impl FnMut(&T) -> bool) {
        let found = self.found(|state| is(state).then_some(()));
        let waited = tokio::time::timeout(Duration::from_secs(60), found).await;
        assert!(waited.is_ok(), "{what}: not within 60 s");
    }
}

/// Serves on a port of its own, over TLS where that is given; which one.
pub(crate) async fn serve<F>(
    tls: Option<TlsAcceptor>,
    answer: impl Fn(Seen) -> F + Clone + Send + Sync + 'static,
) -> u16
where
    F: Future<Output = Reply> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (tls, answer) = (tls.clone(), answer.clone());
            tokio::spawn(async move {
                match tls {
                    None => converse(stream, answer).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            converse(stream, answer).await;
                        }
                    }
                }
            });
        }
    });
    port
}

/// Answers what comes on one connection.
pub(crate) async fn converse<S, F>(stream: S, answer: impl Fn(Seen) -> F + Clone)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Reply>,
{
    let service = service_fn(move |request| respond(answer.clone(), request));
    let serving = hyper::server::conn::http1::Builder::new();
    // How a client ends a connection is its own affair.
    let _ = serving
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond<F: Future<Output = Reply>>(
    answer: impl Fn(Seen) -> F,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes().to_vec());
    let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap().to_owned();
    let headers = head.headers.iter();
    let reply = answer(Seen {
        method: head.method.to_string(),
        path: head.uri.to_string(),
        headers: headers
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect(),
        body: body.unwrap_or_default(),
    })
    .await;
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    Ok(response.body(Full::from(reply.body)).unwrap())
}
