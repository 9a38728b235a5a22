//! HTTP/1.1 on one connection a request: as much as a bench asks and answers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// No body here is larger.
const BODY_BYTES: u64 = 16 << 20;

/// A request or an answer.
#[derive(Debug, Default)]
pub(crate) struct Message {
    /// The first line's words.
    pub(crate) first: Vec<String>,
    /// By their names in small letters.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// Reads one; none where the other side went without a word. An answer without a length ends with
    /// its connection.
    pub(crate) fn read(stream: impl Read) -> anyhow::Result<Option<Message>> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let first = line.split_whitespace().map(str::to_owned).collect();
        let mut headers = BTreeMap::new();
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            match line.trim_end().split_once(':') {
                Some((name, value)) => {
                    headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
                }
                None => break,
            }
        }
        let mut message = Message {
            first,
            headers,
            body: Vec::new(),
        };
        let length = message.headers.get("content-length");
        let length = length.map(|length| length.parse()).transpose()?;
        let length: u64 = match length {
            Some(length) if length > BODY_BYTES => bail!("a body of {length} bytes"),
            Some(length) => length,
            None if message.is_answer_with_body() => BODY_BYTES,
            None => 0,
        };
        reader.take(length).read_to_end(&mut message.body)?;
        Ok(Some(message))
    }

    fn is_answer_with_body(&self) -> bool {
        let is_answer = self.word(0).starts_with("HTTP/");
        is_answer && !matches!(self.word(1), "204" | "304")
    }

    pub(crate) fn word(&self, at: usize) -> &str {
        self.first.get(at).map_or("", String::as_str)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Asks on a connection that is for this alone.
pub(crate) fn ask(
    mut stream: impl Read + Write,
    (method, path): (&str, &str),
    body: &Value,
) -> anyhow::Result<Message> {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let answer = Message::read(stream)?;
    answer.with_context(|| format!("{method} {path}: no answer"))
}

/// Answers on a connection that ends with it.
pub(crate) fn answer(
    mut stream: impl Write,
    status: u16,
    headers: &[(&str, String)],
    body: &[u8],
) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} x\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if status != 204 {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    let whole = [head.as_bytes(), body].concat();
    stream.write_all(&whole)
}
