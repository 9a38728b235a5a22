//! `/metrics` and `/health` of this node.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use vk_exporter::{Exhibit, Listen};

use super::{DiskFree, Metrics, Snapshot};
use crate::daemon::Message;
use crate::host;
use crate::state_dir::StateDir;

/// An actor that does not answer within this is ill.
const ACTOR: Duration = Duration::from_secs(5);

struct Shown {
    metrics: Arc<Metrics>,
    state: StateDir,
    actor: mpsc::Sender<Message>,
}

/// Begins to serve; the actor is asked through `actor`.
///
/// # Errors
/// The address or path cannot be listened on.
pub(crate) async fn serve(
    listen: &Listen,
    metrics: Arc<Metrics>,
    state: StateDir,
    actor: mpsc::Sender<Message>,
) -> io::Result<()> {
    let shown = Shown {
        metrics,
        state,
        actor,
    };
    vk_exporter::serve(listen, shown).await
}

impl Exhibit for Shown {
    async fn metrics(&self) -> Result<String, String> {
        let now = self.ask().await.ok_or_else(silent)?;
        let state = self.state.clone();
        let disk = tokio::task::spawn_blocking(move || host::free(&state.jobs())).await;
        let disk = disk.ok().flatten().map(|free| DiskFree {
            bytes: free.free_bytes,
            inodes: free.free_inodes,
        });
        let text = self.metrics.text(&now, disk);
        text.map_err(|error| error.to_string())
    }

    async fn health(&self) -> Result<(), String> {
        health(self.ask().await)
    }
}

impl Shown {
    /// Asks the actor how things stand; nothing where it does not answer.
    async fn ask(&self) -> Option<Snapshot> {
        let asking = async {
            let (tell, told) = oneshot::channel();
            self.actor.send(Message::Look(tell)).await.ok()?;
            told.await.ok()
        };
        tokio::time::timeout(ACTOR, asking).await.ok().flatten()
    }
}

fn silent() -> String {
    format!("the node did not answer within {} s", ACTOR.as_secs())
}

/// The node is well while it answers and its journal can be written. Without its hub it is well,
/// too: jobs go on.
fn health(now: Option<Snapshot>) -> Result<(), String> {
    match now.ok_or_else(silent)?.store_failed {
        Some(why) => Err(format!("the journal cannot be written: {why}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_node_and_a_journal_that_cannot_be_written_are_ill() {
        assert_eq!(health(Some(Snapshot::default())), Ok(()));
        let full = Snapshot {
            store_failed: Some("no space".to_owned()),
            ..Snapshot::default()
        };
        assert!(health(Some(full)).unwrap_err().contains("no space"));
        assert!(health(None).unwrap_err().contains("5 s"));
    }
}
