//! `/metrics` and `/health` on a loopback address or a Unix socket.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::{Metrics, Snapshot};
use crate::edge::Word;

/// Connections at once; more wait.
const CONNECTIONS: usize = 16;
/// A connection that says nothing, and one altogether, last no longer.
const SILENT: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(60);
/// A loop that does not answer within this is ill.
const LOOP: Duration = Duration::from_secs(5);

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A loopback address.
    Tcp(SocketAddr),
    /// A Unix socket, mode 0660.
    Unix(PathBuf),
}

/// An address that is none, or one that others reach.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Neither form.
    #[error("{0:?} is neither an address like 127.0.0.1:9252 nor unix: with an absolute path")]
    Nonsense(String),
    /// Not loopback.
    #[error("{0} can be reached from elsewhere: use a loopback address, or unix: with a path")]
    Open(SocketAddr),
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Listen, ListenError> {
        if let Some(path) = text
            .strip_prefix("unix:")
            .filter(|path| path.starts_with('/'))
        {
            return Ok(Listen::Unix(PathBuf::from(path)));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Listen::Tcp(address)),
            Ok(address) => Err(ListenError::Open(address)),
            Err(_) => Err(ListenError::Nonsense(text.to_owned())),
        }
    }
}

/// What every connection needs.
#[derive(Clone)]
struct Shared {
    metrics: Arc<Metrics>,
    words: mpsc::Sender<Word>,
}

/// Begins to serve; the loop is asked through `words`.
///
/// # Errors
/// The address or path cannot be listened on.
pub async fn serve(
    listen: &Listen,
    metrics: Arc<Metrics>,
    words: mpsc::Sender<Word>,
) -> io::Result<()> {
    let shared = Shared { metrics, words };
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    match listen {
        Listen::Tcp(address) => {
            let listener = TcpListener::bind(address).await?;
            tokio::spawn(async move {
                loop {
                    let accepted = listener.accept().await.map(|(stream, _)| stream);
                    take(accepted, &room, &shared).await;
                }
            });
        }
        Listen::Unix(path) => {
            // A socket that an earlier life left behind; whatever else is there stays.
            if fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket()) {
                fs::remove_file(path)?;
            }
            let listener = UnixListener::bind(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
            tokio::spawn(async move {
                loop {
                    let accepted = listener.accept().await.map(|(stream, _)| stream);
                    take(accepted, &room, &shared).await;
                }
            });
        }
    }
    Ok(())
}

async fn take<S>(accepted: io::Result<S>, room: &Arc<Semaphore>, shared: &Shared)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = match accepted {
        Ok(stream) => stream,
        Err(error) => {
            // Most often descriptors ran out: that passes, or it does not; no reason to spin.
            tracing::warn!(%error, "a connection to the metrics could not be taken");
            tokio::time::sleep(Duration::from_secs(1)).await;
            return;
        }
    };
    if let Ok(permit) = Arc::clone(room).acquire_owned().await {
        tokio::spawn(converse(stream, shared.clone(), permit));
    }
}

async fn converse<S>(stream: S, shared: Shared, permit: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| respond(shared.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SILENT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // How a looker's connection ends is its own affair.
    let _ = tokio::time::timeout(WHOLE, connection).await;
    drop(permit);
}

async fn respond(
    shared: Shared,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let plain = "text/plain; charset=utf-8";
    if request.method() != Method::GET {
        return Ok(answer(
            StatusCode::METHOD_NOT_ALLOWED,
            plain,
            "GET only\n".to_owned(),
        ));
    }
    Ok(match request.uri().path() {
        "/metrics" => {
            let form = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let now = ask(&shared).await.unwrap_or_default();
            match shared.metrics.text(&now) {
                Ok(text) => answer(StatusCode::OK, form, text),
                Err(_) => answer(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    plain,
                    "no text\n".to_owned(),
                ),
            }
        }
        "/health" => match health(ask(&shared).await) {
            Ok(()) => answer(StatusCode::OK, plain, "ok\n".to_owned()),
            Err(why) => answer(StatusCode::SERVICE_UNAVAILABLE, plain, format!("{why}\n")),
        },
        _ => answer(
            StatusCode::NOT_FOUND,
            plain,
            "/metrics and /health\n".to_owned(),
        ),
    })
}

fn answer(status: StatusCode, form: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let form = hyper::header::HeaderValue::from_static(form);
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, form);
    response
}

/// Asks the loop how things stand; nothing where it does not answer.
async fn ask(shared: &Shared) -> Option<Snapshot> {
    let asking = async {
        let (tell, told) = oneshot::channel();
        shared.words.send(Word::Tell(tell)).await.ok()?;
        told.await.ok()
    };
    tokio::time::timeout(LOOP, asking).await.ok().flatten()
}

/// The daemon is well while its loop answers and its state can be kept.
fn health(now: Option<Snapshot>) -> Result<(), String> {
    let now = now.ok_or_else(|| format!("the loop did not answer within {} s", LOOP.as_secs()))?;
    let ill = now.runners.iter().find(|runner| !runner.stores);
    match ill {
        Some(runner) => Err(format!(
            "the state file of runner {:?} cannot be written",
            runner.name
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::RunnerNow;
    use super::*;

    #[test]
    fn only_what_stays_on_this_host_is_listened_on() {
        let listen = |text: &str| text.parse::<Listen>();
        assert_eq!(
            listen("127.0.0.1:9252"),
            Ok(Listen::Tcp(([127, 0, 0, 1], 9252).into()))
        );
        assert!(listen("[::1]:9252").is_ok());
        assert_eq!(
            listen("unix:/run/vk/m"),
            Ok(Listen::Unix("/run/vk/m".into()))
        );
        for open in ["0.0.0.0:9252", "192.0.2.1:9252", "[::]:9252"] {
            assert!(matches!(listen(open), Err(ListenError::Open(_))), "{open}");
        }
        for nonsense in ["", "localhost", "unix:m", "9252"] {
            assert!(
                matches!(listen(nonsense), Err(ListenError::Nonsense(_))),
                "{nonsense}"
            );
        }
    }

    #[test]
    fn a_silent_loop_and_a_state_that_cannot_be_kept_are_ill() {
        let runner = |stores| RunnerNow {
            name: "ci".to_owned(),
            stores,
            ..RunnerNow::default()
        };
        let with = |stores| Snapshot {
            runners: vec![runner(true), runner(stores)],
        };
        assert_eq!(health(Some(with(true))), Ok(()));
        assert!(health(Some(with(false))).unwrap_err().contains("\"ci\""));
        assert!(health(None).unwrap_err().contains("5 s"));
    }
}
