//! The socket's side in the command line.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::call::{Call, Request, VERSION};

/// An answer must be here within this.
const WITHIN: Duration = Duration::from_secs(30);
/// Bytes of an answer at most.
const ANSWER_BYTES: u64 = 16 * 1024 * 1024;

/// A call that was not answered as wished.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// There is no hub behind the socket.
    #[error("no hub answers at {}: start it with `vk-hub serve`, as the same user", path.display())]
    NoHub {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the hub at {} broke off", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The answer makes no sense: another version's.
    #[error("the hub's answer makes no sense: use the vk-hub of the hub's own version")]
    Nonsense(#[source] serde_json::Error),
    /// The hub refused.
    #[error("{0}")]
    Refused(String),
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    ok: Value,
    err: Option<String>,
}

/// Asks the hub behind the socket.
///
/// # Errors
/// See [`AdminError`].
pub fn call<T: DeserializeOwned>(socket: &Path, call: Call) -> Result<T, AdminError> {
    let no_hub = |source| AdminError::NoHub {
        path: socket.to_owned(),
        source,
    };
    let broken = |source| AdminError::Broken {
        path: socket.to_owned(),
        source,
    };
    let stream = UnixStream::connect(socket).map_err(no_hub)?;
    stream.set_read_timeout(Some(WITHIN)).map_err(broken)?;
    stream.set_write_timeout(Some(WITHIN)).map_err(broken)?;
    let mut line =
        serde_json::to_vec(&Request { v: VERSION, call }).map_err(AdminError::Nonsense)?;
    line.push(b'\n');
    (&stream).write_all(&line).map_err(broken)?;
    let mut answer = String::new();
    BufReader::new((&stream).take(ANSWER_BYTES))
        .read_line(&mut answer)
        .map_err(broken)?;
    let reply: Reply = serde_json::from_str(&answer).map_err(AdminError::Nonsense)?;
    match reply.err {
        Some(why) => Err(AdminError::Refused(why)),
        None => serde_json::from_value(reply.ok).map_err(AdminError::Nonsense),
    }
}
