//! The two pages.

use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Listen;

/// Connections at once; more wait.
const CONNECTIONS: usize = 16;
/// A connection that says nothing, and one altogether, last no longer.
const SILENT: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(60);

/// What a program shows of itself.
pub trait Exhibit: Send + Sync + 'static {
    /// Its metrics, in the OpenMetrics text form.
    ///
    /// # Errors
    /// There is no text, and why.
    fn metrics(&self) -> impl Future<Output = Result<String, String>> + Send;

    /// Whether it is well.
    ///
    /// # Errors
    /// It is not, and why.
    fn health(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// Begins to serve; ends with the runtime.
///
/// # Errors
/// The address or path cannot be listened on.
pub async fn serve(listen: &Listen, exhibit: impl Exhibit) -> io::Result<()> {
    let exhibit = Arc::new(exhibit);
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    match listen {
        Listen::Tcp(address) => {
            let listener = TcpListener::bind(address).await?;
            tokio::spawn(async move {
                loop {
                    let accepted = listener.accept().await.map(|(stream, _)| stream);
                    take(accepted, &room, &exhibit).await;
                }
            });
        }
        Listen::Unix(path) => {
            clear(path).await?;
            let listener = UnixListener::bind(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
            tokio::spawn(async move {
                loop {
                    let accepted = listener.accept().await.map(|(stream, _)| stream);
                    take(accepted, &room, &exhibit).await;
                }
            });
        }
    }
    Ok(())
}

/// Removes a socket that an earlier life left behind: one that nobody listens on. Whatever else is
/// there stays.
async fn clear(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket()) {
        return Ok(());
    }
    let used = |why: &str| {
        let shown = path.display();
        let why = format!("{shown} {why}: end that program, or listen elsewhere");
        io::Error::new(io::ErrorKind::AddrInUse, why)
    };
    match UnixStream::connect(path).await {
        Ok(_) => Err(used("is served by another program")),
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(used(&format!("may be another program's ({error})"))),
        },
    }
}

async fn take<S>(accepted: io::Result<S>, room: &Arc<Semaphore>, exhibit: &Arc<impl Exhibit>)
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
        tokio::spawn(converse(stream, Arc::clone(exhibit), permit));
    }
}

async fn converse<S>(stream: S, exhibit: Arc<impl Exhibit>, permit: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| respond(Arc::clone(&exhibit), request));
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
    exhibit: Arc<impl Exhibit>,
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
            match exhibit.metrics().await {
                Ok(text) => answer(StatusCode::OK, form, text),
                Err(why) => answer(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    plain,
                    format!("no text: {why}\n"),
                ),
            }
        }
        "/health" => match exhibit.health().await {
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

#[cfg(test)]
mod tests;
