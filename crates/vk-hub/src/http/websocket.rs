//! What the sessions of nodes and relays have in common.

use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use vk_hub_client::Stream;
use vk_hub_client::session::{SessionError, websocket_config};
use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::node_session::RefusedCode;

use super::answer::{HttpAnswer, empty, refused};
use super::heard::{Heard, Listening};

/// A connection that became a WebSocket.
pub(crate) type Socket = WebSocketStream<Box<dyn Stream>>;

/// Answers a request that asks for a WebSocket, and hands that over.
pub(crate) fn websocket<F>(
    mut request: Request<Incoming>,
    open: impl FnOnce(Socket, Heard) -> F + Send + 'static,
) -> HttpAnswer
where
    F: Future<Output = ()> + Send,
{
    let header = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let is_upgrade = header(UPGRADE).is_some_and(|value| value.eq_ignore_ascii_case("websocket"));
    let Some(key) = request
        .headers()
        .get(SEC_WEBSOCKET_KEY)
        .filter(|_| is_upgrade)
    else {
        return refused(ErrorCode::Invalid, "a session is a WebSocket");
    };
    let accept = derive_accept_key(key.as_bytes());
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(stream) = upgraded.await else { return };
        let heard = Heard::new();
        let stream = Listening::new(TokioIo::new(stream), heard.clone());
        let stream: Box<dyn Stream> = Box::new(stream);
        let config = Some(websocket_config());
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, config).await;
        open(socket, heard).await;
    });
    let mut answer = empty(StatusCode::SWITCHING_PROTOCOLS.as_u16());
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    answer
}

pub(crate) fn refuse(code: RefusedCode, reason: &str) -> SessionError {
    SessionError::Refused {
        code,
        reason: reason.to_owned(),
    }
}

/// A peer that takes nothing for so long is as good as silent: its session ends.
pub(crate) async fn within(
    silence: Duration,
    sent: impl Future<Output = Result<(), SessionError>>,
) -> Result<(), SessionError> {
    timeout(silence, sent)
        .await
        .map_err(|_| SessionError::Silent(silence))?
}
