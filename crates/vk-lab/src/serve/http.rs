//! The accept loop: HTTP/1.1, a bounded number of connections.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::lab::Lab;
use super::route;

/// Most connections at once: 5,000 held job requests and what comes beside them.
const MAX_CONNECTIONS: usize = 8_192;
/// A connection that brings no whole head for so long is closed, as a usual proxy does.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// A pause after a failed accept (no file descriptors left, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections for ever.
pub(super) async fn serve(lab: Arc<Lab>, listener: TcpListener) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                eprintln!("vk-lab: a connection was not taken: {error}; trying on");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let lab = Arc::clone(&lab);
        tokio::spawn(async move {
            let service = service_fn(move |request| route::answer(Arc::clone(&lab), request));
            let mut server = http1::Builder::new();
            server
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT);
            // An error here is a client that went away, or an answer withheld on purpose.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
            drop(slot);
        });
    }
}
