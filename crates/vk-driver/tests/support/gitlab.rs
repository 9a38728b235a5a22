//! A GitLab that takes artifacts and gives them out, as it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Method and target.
    pub(crate) line: String,
    headers: Vec<String>,
    /// What its one part has, and that part's file name.
    pub(crate) file: Vec<u8>,
    pub(crate) file_name: String,
    /// Files in the watched directory while it was read.
    pub(crate) on_disk: Vec<String>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut both = self.headers.iter().filter_map(|line| line.split_once(": "));
        both.find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The target's query.
    pub(crate) fn query(&self) -> &str {
        let target = self.line.split(' ').nth(1).unwrap();
        target.split_once('?').map_or("", |(_, query)| query)
    }
}

/// An answer: status and reason, headers, body.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    head: String,
    body: Vec<u8>,
}

/// An answer without more.
pub(crate) fn status(head: &str) -> Answer {
    with(head, b"")
}

/// An answer with a body.
pub(crate) fn with(head: &str, body: &[u8]) -> Answer {
    Answer {
        head: head.to_owned(),
        body: body.to_vec(),
    }
}

/// The server. It lives as long as the test's process.
pub(crate) struct GitLab {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl GitLab {
    /// Answers by request and its number, from 0.
    pub(crate) fn new(
        watched: Option<PathBuf>,
        answer: impl Fn(&Request, usize) -> Answer + Send + 'static,
    ) -> GitLab {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = read(&stream);
                if let Some(dir) = &watched {
                    files(dir, &mut request.on_disk);
                }
                let number = log.lock().unwrap().len();
                let answer = answer(&request, number);
                log.lock().unwrap().push(request);
                let length = answer.body.len();
                let end = format!("Content-Length: {length}\r\nConnection: close\r\n\r\n");
                let head = format!("HTTP/1.1 {}\r\n{end}", answer.head);
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&answer.body).unwrap();
            }
        });
        GitLab { url, seen }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn files(dir: &std::path::Path, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            names.push(entry.file_name().into_string().unwrap());
        }
    }
}

fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut request = Request {
        line: lines.remove(0),
        headers: lines,
        file: Vec::new(),
        file_name: String::new(),
        on_disk: Vec::new(),
    };
    let length = request.header("content-length").unwrap_or("0");
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    if let Some(kind) = request.header("content-type").map(str::to_owned) {
        (request.file_name, request.file) = part(&kind, &body);
    }
    request
}

/// File name and content of a form's one part, which must be named `file`.
fn part(kind: &str, body: &[u8]) -> (String, Vec<u8>) {
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let end = format!("\r\n--{boundary}--\r\n");
    let rest = body
        .strip_prefix(format!("--{boundary}\r\n").as_bytes())
        .unwrap();
    let rest = rest.strip_suffix(end.as_bytes()).unwrap();
    let at = rest
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = std::str::from_utf8(&rest[..at]).unwrap();
    let (_, name) = head.split_once("name=\"file\"; filename=\"").unwrap();
    let name = name.split('"').next().unwrap().to_owned();
    (name, rest[at + 4..].to_vec())
}
