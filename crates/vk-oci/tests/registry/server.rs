//! A small HTTP server that answers as it is told and remembers what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Bytes announced, where they are not those of the body.
    announced: Option<u64>,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            announced: None,
        }
    }

    pub(crate) fn ok(body: &[u8]) -> Self {
        Self::status(200).body(body)
    }

    pub(crate) fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn redirect(to: &str) -> Self {
        Self::status(307).header("location", to)
    }

    pub(crate) fn challenge(realm: &str) -> Self {
        let value =
            format!(r#"Bearer realm="{realm}",service="here",scope="repository:a/b:pull,push""#);
        Self::status(401).header("www-authenticate", &value)
    }

    /// Says a length and then sends what there is: the connection breaks or goes on too long.
    pub(crate) fn announcing(mut self, length: u64) -> Self {
        self.announced = Some(length);
        self
    }

    fn send(&self, head_only: bool, mut stream: &TcpStream) -> std::io::Result<()> {
        let length = self.announced.unwrap_or(self.body.len() as u64);
        let mut head = format!(
            "HTTP/1.1 {} X\r\nconnection: close\r\ncontent-length: {length}\r\n",
            self.status
        );
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        if !head_only {
            stream.write_all(&self.body)?;
        }
        stream.flush()
    }
}

pub(crate) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn new(answer: impl Fn(&Request) -> Reply + Send + 'static) -> Self {
        Self::with_origin(move |_| answer)
    }

    /// As [`Server::new`], for answers that name the server itself.
    pub(crate) fn with_origin<A>(make: impl FnOnce(String) -> A) -> Self
    where
        A: Fn(&Request) -> Reply + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = make(format!("http://{address}"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(request) = read(&stream) {
                    log.lock().unwrap().push(request.clone());
                    let _ = answer(&request).send(request.method == "HEAD", &stream);
                }
            }
        });
        Self { address, requests }
    }

    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream.take(8 << 20));
    let mut lines = reader.by_ref().lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        method,
        path,
        headers,
        body,
    })
}
