//! A disk that finds no room on its host: QEMU then stops the guest, in the middle of a write, and waits
//! for whoever may make room. Nobody here does, so that the job would stand still until its time is over.

use std::future::pending;
use std::path::Path;

use serde_json::{Value, json};

use super::qmp::{Qmp, QmpError};

/// Waits until the VM behind this control socket stands still for want of room; why.
pub(crate) async fn want_of_room(socket: &Path) -> String {
    match watch(socket).await {
        Ok(why) => why,
        // A QEMU that is gone is seen to be: this has nothing to say of it.
        Err(error) => {
            tracing::debug!(%error, "a VM's disks are not watched");
            pending().await
        }
    }
}

async fn watch(socket: &Path) -> Result<String, QmpError> {
    let mut qmp = Qmp::connect(socket).await?;
    // It may have happened before anybody listened.
    let status = qmp.execute("query-status", json!({})).await?;
    if status.get("status").and_then(Value::as_str) == Some("io-error") {
        return Ok("a write failed".to_owned());
    }
    loop {
        let event = qmp.event("BLOCK_IO_ERROR").await?;
        let text = |key: &str| event.get(key).and_then(Value::as_str);
        // What is reported to the guest is the guest's matter.
        if text("action") == Some("stop") {
            return Ok(text("reason").unwrap_or("a write failed").to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::UnixListener;

    use super::*;

    /// What is told of a QEMU that says these things when it is asked how it is.
    async fn told(says: &'static str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (from, mut to) = stream.into_split();
            let mut asked = BufReader::new(from).lines();
            to.write_all(b"{\"QMP\": {}}\n").await.unwrap();
            for line in ["{\"return\": {}}\n", says] {
                asked.next_line().await.unwrap();
                to.write_all(line.as_bytes()).await.unwrap();
            }
            asked.next_line().await.unwrap();
        });
        want_of_room(&path).await
    }

    #[tokio::test]
    async fn a_guest_that_stands_still_for_want_of_room_is_told_and_one_that_hears_of_it_is_not() {
        let running = "{\"return\": {\"status\": \"running\"}}\n\
                       {\"event\": \"BLOCK_IO_ERROR\", \"data\": {\"action\": \"report\", \"reason\": \"no\"}}\n\
                       {\"event\": \"BLOCK_IO_ERROR\", \"data\": {\"action\": \"stop\", \"reason\": \"full\"}}\n";
        assert_eq!(told(running).await, "full");
        let stands = "{\"return\": {\"status\": \"io-error\"}}\n";
        assert_eq!(told(stands).await, "a write failed");
    }
}
