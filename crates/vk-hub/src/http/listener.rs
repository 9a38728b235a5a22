//! Accepting connections and taking their requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, StatusCode, server};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use vk_hub_core::Principal;
use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::limit::{BODY_BYTES, SUBMISSION_BYTES};
use vk_hub_proto::signed::{Channel, EXPORTER_LABEL};

use super::answer::{HttpAnswer, empty, refused};
use super::routes::{NoRoute, Route, route};
use super::seats::{Excess, Place, Seats};
use super::{auth, client, enrol, node, relay};
use crate::fleet::FleetHandle;
use crate::members::Members;
use crate::store::MemberKind;

/// A handshake of TLS, or the head of a request, must be here within this.
const HEAD: Duration = Duration::from_secs(10);
/// A body must be here within this (API-68).
const BODY: Duration = Duration::from_secs(30);

/// What requests are answered with.
#[derive(Clone)]
pub struct Context {
    /// The fleet.
    pub fleet: FleetHandle,
    /// Who is enrolled.
    pub members: Members,
    /// How often nodes give a sign of life.
    pub heartbeat: Duration,
    /// How many connections there may be.
    pub seats: Seats,
}

/// The listener.
pub struct Listener {
    tcp: TcpListener,
    tls: Option<TlsAcceptor>,
    context: Context,
}

impl Listener {
    /// Listens on an address.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn bind(
        addr: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        context: Context,
    ) -> std::io::Result<Listener> {
        Ok(Listener {
            tcp: TcpListener::bind(addr).await?,
            tls: tls.map(TlsAcceptor::from),
            context,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The socket does not say.
    pub fn addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Accepts connections for ever.
    pub async fn run(self) {
        let listener = Arc::new(self);
        loop {
            match listener.tcp.accept().await {
                Ok((tcp, _)) => {
                    let listener = Arc::clone(&listener);
                    tokio::spawn(async move { listener.connection(tcp).await });
                }
                Err(error) => {
                    tracing::error!(%error, "a connection could not be accepted");
                    // Out of descriptors, most likely: some must be closed first.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn connection(&self, tcp: TcpStream) {
        let seats = &self.context.seats;
        let Some(place) = seats.stranger(HEAD).await else {
            seats.turn_away(Excess::Strangers);
            if let Some(_teller) = seats.teller() {
                let _ = timeout(HEAD, self.secured(tcp, None)).await;
            }
            return;
        };
        self.secured(tcp, Some(place)).await;
    }

    /// Serves a connection, over TLS where that is set; one without a place is told so.
    async fn secured(&self, tcp: TcpStream, place: Option<Place>) {
        // A peer that is gone already needs no answer.
        let _ = tcp.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return self.serve(tcp, Channel::Plaintext, place).await;
        };
        let Ok(Ok(stream)) = timeout(HEAD, tls.accept(tcp)).await else {
            return;
        };
        let exporter =
            stream
                .get_ref()
                .1
                .export_keying_material([0; 32], EXPORTER_LABEL, Some(&[]));
        if let Ok(exporter) = exporter {
            self.serve(stream, Channel::Tls(exporter), place).await;
        }
    }

    /// One request, and then the connection ends (AUTH-19), unless it became a session.
    async fn serve<S>(&self, stream: S, channel: Channel, place: Option<Place>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let service = service_fn(|request| {
            let (context, place) = (self.context.clone(), place.clone());
            async move {
                let answer = match place {
                    Some(place) => routed(context, request, channel, place).await,
                    None => too_many("connections that have not said whose they are"),
                };
                Ok::<_, Infallible>(closing(answer))
            }
        });
        let served = server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "a connection broke");
        }
    }
}

/// Every answer ends its connection (AUTH-19), but the one that makes it a session.
fn closing(mut answer: HttpAnswer) -> HttpAnswer {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        answer
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// 503, and never 429: the other side is to come again (API-68).
fn too_many(what: &str) -> HttpAnswer {
    let why = format!("the hub has as many {what} as it may have; try again");
    refused(ErrorCode::Unavailable, why)
}

async fn routed(
    context: Context,
    request: Request<Incoming>,
    channel: Channel,
    place: Place,
) -> HttpAnswer {
    match route(request.method(), request.uri().path()) {
        Err(NoRoute::NotFound) => refused(ErrorCode::NotFound, "there is no such request"),
        Err(NoRoute::BadId) => refused(
            ErrorCode::Invalid,
            "an ID is 32 lowercase hexadecimal digits",
        ),
        Ok(Route::NodeSession) if !place.node() => too_many("nodes' sessions"),
        Ok(Route::NodeSession) => node::upgrade(context, request, channel, place),
        Ok(Route::RelaySession) if !place.client() => too_many("clients' connections"),
        Ok(Route::RelaySession) => relay::upgrade(context, request, channel, place),
        Ok(Route::Enrol) => enrolment(context, request, MemberKind::Node).await,
        Ok(Route::EnrolGitLab) => enrolment(context, request, MemberKind::GitLab).await,
        Ok(route) => signed(context, request, route, channel, &place).await,
    }
}

async fn enrolment(context: Context, request: Request<Incoming>, kind: MemberKind) -> HttpAnswer {
    match body(&context.seats, request.into_body(), BODY_BYTES).await {
        Ok(body) => enrol::enrol(&context, kind, &body).await,
        Err(answer) => *answer,
    }
}

/// A relay's request: headers first, then the body, then the signature (AUTH-18).
async fn signed(
    context: Context,
    request: Request<Incoming>,
    route: Route,
    channel: Channel,
    place: &Place,
) -> HttpAnswer {
    let (head, incoming) = request.into_parts();
    let claim = match auth::claim(&head.headers, &context.members) {
        Ok(claim) => claim,
        Err(why) => return refused(ErrorCode::Unauthorized, why),
    };
    let most = if route == Route::Submit {
        SUBMISSION_BYTES
    } else {
        BODY_BYTES
    };
    let body = match body(&context.seats, incoming, most).await {
        Ok(body) => body,
        Err(answer) => return *answer,
    };
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    if !claim.holds(head.method.as_str(), path, &body, channel) {
        let why = "the signature does not fit this request on this connection; a proxy that ends \
                   TLS in front of the hub breaks it";
        return refused(ErrorCode::Unauthorized, why);
    }
    if !place.client() {
        return too_many("clients' connections");
    }
    place.known();
    let by = Principal::Relay(claim.relay);
    client::ask(
        &context,
        by,
        route,
        head.uri.query().unwrap_or_default(),
        &body,
    )
    .await
}

/// The whole body, bounded in bytes and time.
async fn body(seats: &Seats, body: Incoming, most: usize) -> Result<Vec<u8>, Box<HttpAnswer>> {
    match timeout(BODY, Limited::new(body, most).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes().to_vec()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let why = format!("the body is larger than {most} bytes");
            Err(Box::new(refused(ErrorCode::TooLarge, why)))
        }
        // The peer broke off: nobody reads the answer.
        Ok(Err(_)) => Err(Box::new(empty(400))),
        Err(_) => {
            seats.turn_away(Excess::LateBody);
            let why = format!("the body was not here within {} s", BODY.as_secs());
            Err(Box::new(refused(ErrorCode::Unavailable, why)))
        }
    }
}
