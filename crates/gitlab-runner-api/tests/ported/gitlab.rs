//! A GitLab that answers by the request and keeps each as it came.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use gitlab_runner_api::{Client, Identity, Info, TlsFiles};
use serde_json::Value;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn read(stream: &TcpStream) -> Request {
        let mut reader = BufReader::new(stream);
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let first = line();
        let mut words = first.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let headers = std::iter::from_fn(|| Some(line()).filter(|line| !line.is_empty()))
            .map(|line| {
                let (name, value) = line.split_once(": ").unwrap();
                (name.to_lowercase(), value.to_owned())
            })
            .collect();
        let mut request = Request {
            method,
            path,
            headers,
            body: Vec::new(),
        };
        let length = request.header("content-length");
        let length = length.map_or(0, |length| length.parse().unwrap());
        request.body = vec![0; length];
        reader.read_exact(&mut request.body).unwrap();
        request
    }
}

/// An answer: the status line's end, headers, the body.
pub(crate) struct Answer {
    status: String,
    headers: Vec<String>,
    body: String,
}

pub(crate) fn answer(status: &str) -> Answer {
    Answer {
        status: status.to_owned(),
        headers: Vec::new(),
        body: String::new(),
    }
}

impl Answer {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Answer {
        self.headers.push(format!("{name}: {value}\r\n"));
        self
    }

    /// A header, where there is one.
    pub(crate) fn maybe(self, name: &str, value: Option<&str>) -> Answer {
        match value {
            Some(value) => self.header(name, value),
            None => self,
        }
    }

    pub(crate) fn body(mut self, kind: &str, body: &str) -> Answer {
        body.clone_into(&mut self.body);
        self.header("content-type", kind)
    }

    pub(crate) fn json(self, body: &str) -> Answer {
        self.body("application/json", body)
    }
}

pub(crate) struct GitLab {
    url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl GitLab {
    pub(crate) fn new(answers: impl Fn(&Request) -> Answer + Send + 'static) -> GitLab {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = Request::read(&stream);
                log.lock().unwrap().push(request.clone());
                let Answer {
                    status,
                    headers,
                    body,
                } = answers(&request);
                let (headers, length) = (headers.concat(), body.len());
                let text = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
                );
                stream.write_all(text.as_bytes()).unwrap();
            }
        });
        GitLab { url, seen }
    }

    /// A runner's client of this GitLab.
    pub(crate) fn client(&self, token: &str) -> Client {
        self.client_below("", token)
    }

    /// A runner's client of a GitLab that stands below a path.
    pub(crate) fn client_below(&self, path: &str, token: &str) -> Client {
        let identity = Identity {
            token: token.into(),
            system_id: "s_0123456789ab".into(),
            info: Info::new("0.1.0", "abcd1234"),
        };
        let url = format!("{}{path}", self.url).parse().unwrap();
        Client::new(url, identity, &TlsFiles::default()).unwrap()
    }

    /// The requests since the last look.
    pub(crate) fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}
