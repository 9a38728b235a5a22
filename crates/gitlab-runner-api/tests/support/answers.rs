//! A server that answers as it is told.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use gitlab_runner_api::artifacts::ArtifactClient;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let is = |line: &&String| line.to_lowercase().starts_with(&format!("{name}: "));
        self.headers
            .iter()
            .find(is)
            .map(|line| line.split_once(": ").unwrap().1)
    }
}

/// A server with answers in order; the last is repeated.
pub(crate) struct Server {
    pub(crate) base: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn new(answers: &[&str]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut answers: VecDeque<String> = answers.iter().map(|a| (*a).to_owned()).collect();
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = read(&stream);
                log.lock().unwrap().push(request);
                let answer = match answers.len() {
                    1 => answers[0].clone(),
                    _ => answers.pop_front().unwrap(),
                };
                write!(stream, "HTTP/1.1 {answer}").unwrap();
            }
        });
        Server { base, seen }
    }

    pub(crate) fn client(&self) -> ArtifactClient {
        ArtifactClient::new(self.base.parse().unwrap(), None, "1.2.3").unwrap()
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
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
    let line = lines.remove(0);
    let mut request = Request {
        line,
        headers: lines,
        body: Vec::new(),
    };
    let length = request
        .header("content-length")
        .map_or(0, |text| text.parse().unwrap());
    request.body = vec![0; length];
    reader.read_exact(&mut request.body).unwrap();
    request
}

pub(crate) fn status(text: &str) -> String {
    format!("{text}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

pub(crate) fn redirect(code: u16, to: &str) -> String {
    status(&format!("{code} Redirect\r\nLocation: {to}"))
}

pub(crate) fn ok(body: &str) -> String {
    format!(
        "200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
