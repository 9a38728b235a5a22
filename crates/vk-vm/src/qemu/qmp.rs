//! QEMU's control protocol: one command at a time, each with a time limit.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::sockets;

/// QEMU answers at once unless it hangs.
const ANSWER: Duration = Duration::from_secs(10);
/// No answer of QEMU's that is asked for here is longer.
const LINE_MAX: u64 = 1 << 20;

/// Why QEMU did not do as it was told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QmpError {
    /// The socket, or QEMU behind it, is gone.
    #[error("cannot speak with QEMU")]
    Io(#[from] io::Error),
    /// No answer in time.
    #[error("QEMU did not answer {command} within {} s", ANSWER.as_secs())]
    Timeout {
        /// What it was told.
        command: String,
    },
    /// QEMU refused.
    #[error("QEMU refused {command}: {why}")]
    Refused {
        /// The command.
        command: String,
        /// Its reason.
        why: String,
    },
}

/// A connection to one QEMU.
#[derive(Debug)]
pub struct Qmp {
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
}

impl Qmp {
    /// Connects, and readies QEMU for commands.
    ///
    /// # Errors
    /// Any [`QmpError`].
    pub async fn connect(socket: &Path) -> Result<Self, QmpError> {
        let (from, to) = sockets::connect(socket).await?.into_split();
        let mut qmp = Self {
            from: BufReader::new(from),
            to,
        };
        let greeting = timeout(ANSWER, qmp.line());
        greeting.await.map_err(|_| QmpError::Timeout {
            command: "a connection".to_owned(),
        })??;
        qmp.execute("qmp_capabilities", json!({})).await?;
        Ok(qmp)
    }

    /// Executes a command; gives what it returns.
    ///
    /// # Errors
    /// Any [`QmpError`]; after anything but [`QmpError::Refused`] the connection is of no more use.
    pub async fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        let exchange = async {
            self.to.write_all(line.as_bytes()).await?;
            loop {
                let mut said = self.line().await?;
                if let Some(error) = said.get("error") {
                    let why = error
                        .get("desc")
                        .and_then(Value::as_str)
                        .unwrap_or("no reason");
                    let (command, why) = (command.to_owned(), why.to_owned());
                    return Err(QmpError::Refused { command, why });
                }
                // What is no answer is an event, and nobody waits for those.
                if let Some(value) = said.get_mut("return") {
                    return Ok(value.take());
                }
            }
        };
        let done = timeout(ANSWER, exchange).await;
        done.unwrap_or_else(|_| {
            Err(QmpError::Timeout {
                command: command.to_owned(),
            })
        })
    }

    /// Waits for an event of this name; gives what it says.
    ///
    /// # Errors
    /// [`QmpError::Io`]: QEMU is gone.
    pub async fn event(&mut self, name: &str) -> Result<Value, QmpError> {
        loop {
            let mut said = self.line().await?;
            if said.get("event").and_then(Value::as_str) == Some(name) {
                return Ok(said.get_mut("data").map(Value::take).unwrap_or_default());
            }
        }
    }

    async fn line(&mut self) -> Result<Value, QmpError> {
        let mut line = Vec::new();
        (&mut self.from)
            .take(LINE_MAX)
            .read_until(b'\n', &mut line)
            .await?;
        if line.last() != Some(&b'\n') {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        serde_json::from_slice(&line).map_err(|e| QmpError::Io(e.into()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    /// A QEMU that says these lines, one after each line it is told.
    async fn against(lines: &'static [&'static str]) -> (tempfile::TempDir, Qmp) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (from, mut to) = stream.into_split();
            let mut told = BufReader::new(from).lines();
            to.write_all(b"{\"QMP\": {}}\n").await.unwrap();
            for line in ["{\"return\": {}}\n"].iter().chain(lines) {
                told.next_line().await.unwrap();
                to.write_all(line.as_bytes()).await.unwrap();
            }
        });
        let qmp = Qmp::connect(&path).await.unwrap();
        (directory, qmp)
    }

    #[tokio::test]
    async fn an_answer_is_found_among_events_and_a_refusal_says_why() {
        let (_directory, mut qmp) = against(&[
            "{\"event\": \"RESUME\"}\n{\"return\": {\"status\": \"running\"}}\n",
            "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no such disk\"}}\n",
        ])
        .await;
        let status = qmp.execute("query-status", json!({})).await.unwrap();
        assert_eq!(status["status"], "running");
        let error = qmp.execute("blockdev-del", json!({})).await.unwrap_err();
        assert!(error.to_string().contains("no such disk"), "{error}");
        assert!(matches!(
            qmp.execute("quit", json!({})).await,
            Err(QmpError::Io(_))
        ));
    }
}
