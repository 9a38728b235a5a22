//! A caller's side of the admin socket.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::protocol::{AdminError, Command, MAX_LINE};

/// Why a call got no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody listens there.
    #[error("cannot reach {}: {source}; is `vk-lab serve` running, and is it its admin socket?", .socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the connection to `vk-lab serve` broke: {0}; see its output")]
    Broken(#[source] std::io::Error),
    /// Not an answer of ours.
    #[error("`vk-lab serve` answered what is no JSON line; are both of the same version?")]
    NotJson(#[source] serde_json::Error),
    /// It was refused.
    #[error("{}", .0.message)]
    Refused(AdminError),
}

/// Sends one command and gives every answer line to `each` until that says that it was the last.
///
/// # Errors
///
/// The first thing that goes wrong, a refusal among them.
pub fn call(
    socket: &Path,
    command: &Command,
    mut each: impl FnMut(&Value) -> std::io::Result<bool>,
) -> Result<(), CallError> {
    let mut stream = UnixStream::connect(socket).map_err(|source| CallError::Connect {
        socket: socket.to_owned(),
        source,
    })?;
    let mut line = serde_json::to_vec(command).map_err(CallError::NotJson)?;
    line.push(b'\n');
    stream.write_all(&line).map_err(CallError::Broken)?;
    let mut reader = BufReader::new(stream);
    loop {
        let answer = next(&mut reader)?;
        if let Some(error) = answer.get("error") {
            let error = serde_json::from_value(error.clone()).map_err(CallError::NotJson)?;
            return Err(CallError::Refused(error));
        }
        if each(&answer).map_err(CallError::Broken)? {
            return Ok(());
        }
    }
}

fn next(reader: &mut BufReader<UnixStream>) -> Result<Value, CallError> {
    let mut line = Vec::new();
    reader
        .take(MAX_LINE)
        .read_until(b'\n', &mut line)
        .map_err(CallError::Broken)?;
    if line.is_empty() {
        return Err(CallError::Broken(std::io::ErrorKind::UnexpectedEof.into()));
    }
    serde_json::from_slice(&line).map_err(CallError::NotJson)
}
