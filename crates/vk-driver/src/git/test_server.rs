//! A git server over smart HTTP that wants a job's token, with LFS, for tests: `git http-backend`
//! behind a few lines of HTTP.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// `gitlab-ci-token:the-token` in base64.
const BASIC: &str = "Basic Z2l0bGFiLWNpLXRva2VuOnRoZS10b2tlbg==";

/// A server that runs until the test's process ends.
#[allow(dead_code, reason = "each test uses a part")]
#[derive(Clone)]
pub(crate) struct GitServer {
    pub(crate) port: u16,
    /// Requests that were refused, for they brought no token, or another.
    pub(crate) refused: Arc<AtomicU32>,
    /// Each request's first line, with `(authorized)` where it brought any credentials.
    pub(crate) heard: Arc<Mutex<Vec<String>>>,
    /// Objects of LFS are elsewhere: redirects lead there.
    pub(crate) store: Arc<Mutex<Option<String>>>,
    root: PathBuf,
    open: bool,
}

struct Asked {
    method: String,
    path: String,
    query: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Asked {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

#[allow(dead_code, reason = "each test uses a part")]
impl GitServer {
    /// Serves the bare repositories below `root` to whoever brings the token, or to all.
    pub(crate) fn start(root: PathBuf, open: bool) -> GitServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = GitServer {
            port: listener.local_addr().unwrap().port(),
            refused: Arc::default(),
            heard: Arc::default(),
            store: Arc::default(),
            root,
            open,
        };
        let this = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (this, stream) = (this.clone(), stream.unwrap());
                // A client that goes away is no matter.
                std::thread::spawn(move || this.answer(stream));
            }
        });
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Whether any request of this path brought credentials.
    pub(crate) fn was_told_a_secret(&self) -> bool {
        let heard = self.heard.lock().unwrap();
        heard.iter().any(|line| line.ends_with("(authorized)"))
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let asked = read(&stream)?;
        let credentials = asked.header("authorization");
        let mark = if credentials.is_empty() {
            ""
        } else {
            " (authorized)"
        };
        let line = format!("{} {}{mark}", asked.method, asked.path);
        self.heard.lock().unwrap().push(line);
        if !self.open && credentials != BASIC {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let challenge = "WWW-Authenticate: Basic realm=\"GitLab\"\r\n";
            return respond(&mut stream, "401 Unauthorized", challenge, b"");
        }
        if let Some(repository) = asked.path.strip_suffix("/info/lfs/objects/batch") {
            return self.batch(&mut stream, repository, &asked);
        }
        if asked.path.contains("/gitlab-lfs/objects/") {
            if let Some(store) = self.store.lock().unwrap().as_ref() {
                let to = format!("Location: {store}{}?key=signed\r\n", asked.path);
                return respond(&mut stream, "302 Found", &to, b"");
            }
            let path = asked.path.replace("/gitlab-lfs/", "/lfs/");
            return match std::fs::read(self.root.join(path.trim_start_matches('/'))) {
                Ok(content) => respond(&mut stream, "200 OK", "", &content),
                Err(_) => respond(&mut stream, "404 Not Found", "", b""),
            };
        }
        backend(&self.root, &mut stream, &asked)
    }

    /// Answers with what is there of the objects that are asked for.
    fn batch(
        &self,
        stream: &mut TcpStream,
        repository: &str,
        asked: &Asked,
    ) -> std::io::Result<()> {
        let body: serde_json::Value = serde_json::from_slice(&asked.body)?;
        let entry = |object: &serde_json::Value| {
            let (oid, size) = (object["oid"].as_str().unwrap(), &object["size"]);
            let at = format!("{}/lfs/objects/{oid}", repository.trim_start_matches('/'));
            if !self.root.join(at).exists() {
                let error = serde_json::json!({"code": 404, "message": "Object does not exist"});
                return serde_json::json!({"oid": oid, "size": size, "error": error});
            }
            let href = self.url(&format!(
                "{}/gitlab-lfs/objects/{oid}",
                repository.trim_start_matches('/')
            ));
            let header = serde_json::json!({"Authorization": asked.header("authorization")});
            let download = serde_json::json!({"href": href, "header": header});
            serde_json::json!({"oid": oid, "size": size, "actions": {"download": download}})
        };
        let objects: Vec<_> = body["objects"]
            .as_array()
            .unwrap()
            .iter()
            .map(entry)
            .collect();
        let answer = serde_json::json!({"transfer": "basic", "objects": objects}).to_string();
        let kind = "Content-Type: application/vnd.git-lfs+json\r\n";
        respond(stream, "200 OK", kind, answer.as_bytes())
    }
}

fn read(stream: &TcpStream) -> std::io::Result<Asked> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split_whitespace();
    let method = words.next().unwrap_or_default().to_owned();
    let target = words.next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim().split_once(": ") {
            Some((name, value)) => {
                headers.insert(name.to_ascii_lowercase(), value.to_owned());
            }
            None => break,
        }
    }
    let length = headers.get("content-length");
    let length = length.and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Asked {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        headers,
        body,
    })
}

fn backend(root: &Path, stream: &mut TcpStream, asked: &Asked) -> std::io::Result<()> {
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_COUNT", "2")
        .env("GIT_CONFIG_KEY_0", "uploadpack.allowAnySHA1InWant")
        .env("GIT_CONFIG_VALUE_0", "true")
        .env("GIT_CONFIG_KEY_1", "safe.directory")
        .env("GIT_CONFIG_VALUE_1", "*")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", &asked.path)
        .env("REQUEST_METHOD", &asked.method)
        .env("QUERY_STRING", &asked.query)
        .env("CONTENT_TYPE", asked.header("content-type"))
        .env("CONTENT_LENGTH", asked.body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", asked.header("content-encoding"))
        .env("GIT_PROTOCOL", asked.header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut stdin = child.stdin.take().unwrap();
    let body = asked.body.clone();
    let feed = std::thread::spawn(move || stdin.write_all(&body));
    let said = child.wait_with_output()?.stdout;
    let _ = feed.join();
    let at = said.windows(4).position(|four| four == b"\r\n\r\n");
    let at = at.ok_or_else(|| std::io::Error::other("git http-backend says nothing"))?;
    let (head, body) = said.split_at(at);
    let head = String::from_utf8_lossy(head);
    let mut status = "200 OK";
    let mut more = String::new();
    for line in head.lines() {
        match line.strip_prefix("Status: ") {
            Some(other) => status = other,
            None => more += &format!("{line}\r\n"),
        }
    }
    respond(stream, status, &more, body.get(4..).unwrap_or_default())
}

fn respond(stream: &mut TcpStream, status: &str, more: &str, body: &[u8]) -> std::io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(body)
}
