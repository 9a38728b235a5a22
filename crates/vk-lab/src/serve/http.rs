//! The accept loops: HTTP/1.1, a bounded number of connections, in clear and with TLS.

use std::sync::Arc;
use std::time::Duration;

use hyper::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::body::{OutBody, Withheld};
use super::fault::{Opened, elsewhere};
use super::lab::Lab;
use super::route;

/// Most connections of a listener at once: 5,000 held job requests and what comes beside them.
const MAX_CONNECTIONS: usize = 8_192;
/// A connection that brings no whole head for so long is closed, as a usual proxy does.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// A pause after a failed accept (no file descriptors left, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A TLS handshake that takes longer is given up.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Lets this process open as many descriptors as it may: a usual shell's 1,024 are fewer than the
/// requests that are held.
pub(super) fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Without it the server takes fewer connections and says so.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Whose calls come in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Door {
    /// The server's.
    Server,
    /// The other host's.
    Elsewhere,
}

/// Serves connections for ever.
pub(super) async fn serve(lab: Arc<Lab>, listener: TcpListener) {
    serve_at(lab, listener, Door::Server).await;
}

/// Serves one door for ever.
pub(super) async fn serve_at(lab: Arc<Lab>, listener: TcpListener, door: Door) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let stream = accept(&lab, &listener).await;
        let lab = Arc::clone(&lab);
        tokio::spawn(async move {
            connection(lab, stream, door).await;
            drop(slot);
        });
    }
}

/// Serves the server's calls with TLS, for ever.
pub(super) async fn serve_secure(lab: Arc<Lab>, opened: Opened) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let stream = accept(&lab, &opened.listener).await;
        let Some(acceptor) = opened.acceptor() else {
            return;
        };
        let lab = Arc::clone(&lab);
        tokio::spawn(async move {
            // A failed handshake is a client that does not trust the certificate, mostly.
            let shaken = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
            if let Ok(Ok(stream)) = shaken {
                connection(lab, stream, Door::Server).await;
            }
            drop(slot);
        });
    }
}

/// The next connection; one that comes while the server is down is closed at once.
async fn accept(lab: &Lab, listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok(_) if lab.faults.tear.is_down() => {}
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                eprintln!("vk-lab: a connection was not taken: {error}; trying on");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection<S>(lab: Arc<Lab>, stream: S, door: Door)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let torn = lab.faults.tear.wait();
    let service = service_fn(move |request| {
        let lab = Arc::clone(&lab);
        async move {
            match door {
                Door::Server => route::answer(lab, request).await,
                Door::Elsewhere => {
                    let response = elsewhere(lab, request).await;
                    Ok::<Response<OutBody>, Withheld>(response)
                }
            }
        }
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    let served = server.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // An error here is a client that went away, or an answer withheld on purpose.
        _ = served => {}
        () = torn => {}
    }
}
