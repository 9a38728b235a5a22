//! A git server of the dumb HTTP protocol that wants a job's token, for tests.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// `gitlab-ci-token:the-token` in base64.
const BASIC: &str = "Basic Z2l0bGFiLWNpLXRva2VuOnRoZS10b2tlbg==";

/// Serves files below `root` to whoever brings the token.
pub(crate) fn serve(root: PathBuf, strangers: Arc<AtomicU32>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that goes away is no matter.
            let _ = answer(&root, stream.unwrap(), &strangers);
        }
    });
    port
}

fn answer(root: &Path, stream: TcpStream, strangers: &AtomicU32) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut allowed = false;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        allowed |= line.trim() == format!("Authorization: {BASIC}");
    }
    let path = first.split_whitespace().nth(1).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    let mut stream = stream;
    if !allowed {
        strangers.fetch_add(1, Ordering::Relaxed);
        let head = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"GitLab\"\r\n";
        return write!(
            stream,
            "{head}Content-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    match std::fs::read(root.join(path.trim_start_matches('/'))) {
        Ok(body) => {
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            )?;
            stream.write_all(&body)
        }
        Err(_) => {
            let head = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n";
            write!(stream, "{head}Connection: close\r\n\r\n")
        }
    }
}
