//! `/metrics` and `/health` of this daemon.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use vk_exporter::{Exhibit, Listen};

use super::{Metrics, Snapshot};
use crate::edge::Word;

/// A loop that does not answer within this is ill.
const LOOP: Duration = Duration::from_secs(5);

/// What is shown, and the way to the loop.
struct Shown {
    metrics: Arc<Metrics>,
    words: mpsc::Sender<Word>,
}

/// Begins to serve; the loop is asked through `words`.
///
/// # Errors
/// The address or path cannot be listened on.
pub async fn serve(
    listen: &Listen,
    metrics: Arc<Metrics>,
    words: mpsc::Sender<Word>,
) -> io::Result<()> {
    vk_exporter::serve(listen, Shown { metrics, words }).await
}

impl Exhibit for Shown {
    async fn metrics(&self) -> Result<String, String> {
        let now = self.ask().await.unwrap_or_default();
        let text = self.metrics.text(&now);
        text.map_err(|error| error.to_string())
    }

    async fn health(&self) -> Result<(), String> {
        health(self.ask().await)
    }
}

impl Shown {
    /// Asks the loop how things stand; nothing where it does not answer.
    async fn ask(&self) -> Option<Snapshot> {
        let asking = async {
            let (tell, told) = oneshot::channel();
            self.words.send(Word::Tell(tell)).await.ok()?;
            told.await.ok()
        };
        tokio::time::timeout(LOOP, asking).await.ok().flatten()
    }
}

/// The daemon is well while its loop answers and its state can be kept.
fn health(now: Option<Snapshot>) -> Result<(), String> {
    let now = now.ok_or_else(|| format!("the loop did not answer within {} s", LOOP.as_secs()))?;
    let ill = now.runners.iter().find(|runner| !runner.stores);
    match ill {
        Some(runner) => Err(format!(
            "the state file of runner {:?} cannot be written",
            runner.name
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::RunnerNow;
    use super::*;

    #[test]
    fn a_silent_loop_and_a_state_that_cannot_be_kept_are_ill() {
        let runner = |stores| RunnerNow {
            name: "ci".to_owned(),
            stores,
            ..RunnerNow::default()
        };
        let with = |stores| Snapshot {
            runners: vec![runner(true), runner(stores)],
        };
        assert_eq!(health(Some(with(true))), Ok(()));
        assert!(health(Some(with(false))).unwrap_err().contains("\"ci\""));
        assert!(health(None).unwrap_err().contains("5 s"));
    }
}
