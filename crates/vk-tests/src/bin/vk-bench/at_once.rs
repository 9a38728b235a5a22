//! A hub with room for everything, where each job ends at once: what the daemon is measured against
//! where a whole fleet would be in its way. On plain loopback; signatures are not looked at.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message as Frame, WebSocket, accept};

use crate::http::{self, Message};

/// How a request for the session begins.
const SESSION: &[u8] = b"GET /v1/gitlab/session ";
/// Who the daemon is.
const RELAY: &str = "05050505050505050505050505050505";
/// The node that every job was on.
const NODE: &str = "00000000000000000000000000000001";
/// A join's token: on plain loopback no CA is behind the hash, and none is asked for.
pub(crate) const TOKEN: &str = "secret.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n";
/// What each job prints.
const OUTPUT: &[u8] = b"Job succeeded\n";
/// How long a wait for room is held.
const HELD: Duration = Duration::from_secs(50);

static NEXT: AtomicU64 = AtomicU64::new(2);

fn drawn() -> String {
    format!("{:032x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Serves until the program ends; at which URL.
pub(crate) fn serve() -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Clients come and go as they like.
            std::thread::spawn(move || drop(one(stream)));
        }
    });
    Ok(url)
}

fn one(stream: TcpStream) -> anyhow::Result<()> {
    let mut start = [0; SESSION.len()];
    loop {
        let read = stream.peek(&mut start)?;
        let seen = start.get(..read).unwrap_or_default();
        if read == 0 || !SESSION.starts_with(seen) {
            break;
        }
        if read == SESSION.len() {
            return session(stream);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let Some(request) = Message::read(&stream)? else {
        return Ok(());
    };
    let (path, query) = request
        .word(1)
        .split_once('?')
        .unwrap_or((request.word(1), ""));
    let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
    answer(&stream, (request.word(0), &parts, query), &request.json())
}

fn answer(
    stream: &TcpStream,
    (method, path, query): (&str, &[&str], &str),
    asked: &Value,
) -> anyhow::Result<()> {
    let (status, body) = match (method, path) {
        ("POST", ["gitlab", "enroll"]) => (200, json!({ "relay_id": RELAY })),
        ("POST", ["capacity"]) => {
            if asked["after"] == 1 {
                std::thread::sleep(HELD);
            }
            (200, json!({ "revision": 1, "fits": 1000 }))
        }
        ("POST", ["reservations"]) => (201, grant(&drawn(), asked)),
        ("POST", ["reservations", id, "renew"]) => (200, grant(id, asked)),
        ("POST", ["jobs"]) => (201, view(&drawn(), false)),
        ("GET", ["jobs", id]) => (200, view(id, query.contains("after="))),
        ("GET", ["jobs", _, "output"]) => return Ok(output(stream, query)?),
        ("POST", ["jobs", id, "cancel"]) => (202, view(id, true)),
        ("DELETE", ["reservations", _]) | ("POST", ["jobs", _, "settle"]) => (204, Value::Null),
        _ => (
            404,
            json!({ "error": "no such thing", "code": "not_found" }),
        ),
    };
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    Ok(http::answer(stream, status, &[], &body)?)
}

fn grant(id: &str, asked: &Value) -> Value {
    json!({ "reservation": id, "node": NODE, "lease_secs": asked["lease_secs"],
        "envelope": { "mem_mib": 512, "cpus": 1, "disk_bytes": 1 << 30 } })
}

fn view(id: &str, finished: bool) -> Value {
    let (revision, state) = if finished {
        (2, "finished")
    } else {
        (1, "running")
    };
    let mut view = json!({ "id": id, "revision": revision, "state": state, "node": NODE,
        "output_len": OUTPUT.len() });
    if let Some(view) = view.as_object_mut().filter(|_| finished) {
        view.insert("result".into(), json!({ "output_len": OUTPUT.len() }));
    }
    view
}

fn output(stream: &TcpStream, query: &str) -> std::io::Result<()> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let offset = pairs.find(|(name, _)| *name == "offset");
    let offset = offset.and_then(|(_, value)| value.parse().ok());
    let offset: usize = offset.unwrap_or(0);
    let headers = [
        ("vk-output-offset", offset.to_string()),
        ("vk-output-length", OUTPUT.len().to_string()),
        ("vk-output-complete", "true".to_owned()),
    ];
    let bytes = OUTPUT.get(offset..).unwrap_or_default();
    http::answer(stream, 200, &headers, bytes)
}

/// Approves whatever GitLab server is reported.
fn session(stream: TcpStream) -> anyhow::Result<()> {
    let mut socket = accept(stream).ok().context("the session's opening")?;
    hears(&mut socket)?;
    let versions = json!({ "min": 1, "max": 1 });
    let nonce = "03".repeat(32);
    says(
        &mut socket,
        &json!({ "type": "challenge", "version": 1, "versions": versions, "nonce": nonce }),
    )?;
    hears(&mut socket)?;
    says(
        &mut socket,
        &json!({ "type": "welcome", "heartbeat_secs": 5 }),
    )?;
    loop {
        let message = hears(&mut socket)?;
        if message["type"] == "report" {
            says(
                &mut socket,
                &json!({ "type": "server", "status": "approved" }),
            )?;
        } else {
            socket.send(Frame::Ping(Vec::new().into()))?;
        }
    }
}

fn says(socket: &mut WebSocket<TcpStream>, message: &Value) -> anyhow::Result<()> {
    Ok(socket.send(Frame::text(message.to_string()))?)
}

/// The next message.
fn hears(socket: &mut WebSocket<TcpStream>) -> anyhow::Result<Value> {
    loop {
        if let Frame::Text(text) = socket.read()? {
            return Ok(serde_json::from_str(&text)?);
        }
    }
}
