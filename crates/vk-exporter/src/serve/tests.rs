use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::*;

/// Well or ill, as the test says.
struct Shown(Arc<AtomicBool>);

impl Exhibit for Shown {
    async fn metrics(&self) -> Result<String, String> {
        Ok("a 1\n# EOF\n".to_owned())
    }

    async fn health(&self) -> Result<(), String> {
        match self.0.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("the disk is gone".to_owned()),
        }
    }
}

async fn ask(socket: &Path, line: &str) -> String {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn both_pages_are_there_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("metrics");
    let well = Arc::new(AtomicBool::new(true));
    let listen = Listen::Unix(socket.clone());
    serve(&listen, Shown(Arc::clone(&well))).await.unwrap();
    let mode = fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o660);
    let metrics = ask(&socket, "GET /metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 "), "{metrics}");
    assert!(metrics.contains("openmetrics-text") && metrics.ends_with("\r\n\r\na 1\n# EOF\n"));
    assert!(
        ask(&socket, "GET /health")
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    well.store(false, Ordering::Relaxed);
    let ill = ask(&socket, "GET /health").await;
    assert!(
        ill.starts_with("HTTP/1.1 503 ") && ill.ends_with("the disk is gone\n"),
        "{ill}"
    );
    assert!(ask(&socket, "GET /").await.starts_with("HTTP/1.1 404 "));
    assert!(
        ask(&socket, "POST /metrics")
            .await
            .starts_with("HTTP/1.1 405 ")
    );
}

#[tokio::test]
async fn an_earlier_lifes_socket_is_replaced_and_a_file_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("metrics");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let well = || Shown(Arc::new(AtomicBool::new(true)));
    serve(&Listen::Unix(socket.clone()), well()).await.unwrap();
    assert!(
        ask(&socket, "GET /health")
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    let file = dir.path().join("file");
    fs::write(&file, "mine").unwrap();
    serve(&Listen::Unix(file.clone()), well())
        .await
        .unwrap_err();
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
}

#[tokio::test]
async fn a_socket_that_is_served_stays_its_programs() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("metrics");
    let listen = Listen::Unix(socket.clone());
    let first = Arc::new(AtomicBool::new(false));
    serve(&listen, Shown(first)).await.unwrap();
    let second = serve(&listen, Shown(Arc::new(AtomicBool::new(true)))).await;
    let error = second.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let why = error.to_string();
    assert!(
        why.contains("metrics is served by another program"),
        "{why}"
    );
    let ill = ask(&socket, "GET /health").await;
    assert!(ill.starts_with("HTTP/1.1 503 "), "the first's: {ill}");
}
