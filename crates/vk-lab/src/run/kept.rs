//! This side of the keeper: programs are started, stopped and seen to end through it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::descendants;
use super::error::RunError;
use super::keeper::{Event, Order};

/// How long the keeper may take to be ready.
const READY: Duration = Duration::from_secs(20);
/// How long it may take to end everything.
const END: Duration = Duration::from_secs(60);

/// The keeper.
#[derive(Debug)]
pub(super) struct Kept {
    child: Child,
    orders: ChildStdin,
    events: Lines<BufReader<ChildStdout>>,
    /// The private directory.
    pub(super) dir: PathBuf,
}

fn broken(what: &str) -> impl Fn(std::io::Error) -> RunError {
    let what = what.to_owned();
    move |error| RunError::Keeper(format!("{what}: {error}"))
}

impl Kept {
    /// Starts it; its directory is made below `parent`.
    pub(super) async fn start(parent: &Path) -> Result<Self, RunError> {
        // Should the keeper be killed, what it kept comes to this process.
        descendants::adopt().map_err(RunError::System)?;
        let own = std::env::current_exe().map_err(RunError::System)?;
        let mut child = Command::new(own)
            .arg("keeper")
            .arg(parent)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(broken("starting it"))?;
        let no_pipe = || RunError::Keeper("it has no pipes".into());
        let orders = child.stdin.take().ok_or_else(no_pipe)?;
        let out = child.stdout.take().ok_or_else(no_pipe)?;
        let mut kept = Self {
            child,
            orders,
            events: BufReader::new(out).lines(),
            dir: PathBuf::new(),
        };
        match timeout(READY, kept.event()).await {
            Ok(Ok(Event::Ready { dir })) => kept.dir = dir,
            Ok(Ok(other)) => return Err(RunError::Keeper(format!("it began with {other:?}"))),
            Ok(Err(_)) => return Err(RunError::Keeper(kept.said().await)),
            Err(_) => return Err(RunError::Keeper("it does not get ready".into())),
        }
        Ok(kept)
    }

    /// What it said before it ended.
    async fn said(&mut self) -> String {
        use tokio::io::AsyncReadExt as _;
        let mut said = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(4 << 10).read_to_end(&mut said).await;
        }
        String::from_utf8_lossy(&said).trim().to_owned()
    }

    /// Gives an order.
    pub(super) async fn order(&mut self, order: &Order) -> Result<(), RunError> {
        let mut line = serde_json::to_vec(order)
            .map_err(|error| RunError::Keeper(format!("writing an order: {error}")))?;
        line.push(b'\n');
        let written = self.orders.write_all(&line).await;
        written.map_err(broken("writing to it"))
    }

    /// What it tells next. A call that is dropped loses nothing.
    pub(super) async fn event(&mut self) -> Result<Event, RunError> {
        let line = self.events.next_line().await;
        let line = line.map_err(broken("reading from it"))?;
        let line = line.ok_or_else(|| RunError::Keeper("it ended".into()))?;
        serde_json::from_str(&line).map_err(|error| RunError::Keeper(format!("{line:?}: {error}")))
    }

    /// Has it end everything. What is left, if anything.
    pub(super) async fn end(self) -> Option<String> {
        let Self {
            mut child,
            orders,
            mut events,
            dir,
        } = self;
        drop(orders);
        let wait = async {
            let mut left = Some("its keeper ended before".to_owned());
            while let Ok(Some(line)) = events.next_line().await {
                if let Ok(Event::Over { left: told }) = serde_json::from_str(&line) {
                    left = told;
                }
            }
            let _ = child.wait().await;
            left
        };
        let left = timeout(END, wait).await;
        match left.unwrap_or_else(|_| Some("its keeper does not end".into())) {
            None => None,
            Some(why) => last_resort(&dir, why).await,
        }
    }
}

/// Where the keeper could not: everything that came to this process ends, the directory goes.
async fn last_resort(dir: &Path, why: String) -> Option<String> {
    let dir = dir.to_owned();
    let done = tokio::task::spawn_blocking(move || {
        let gone = descendants::end_all(Duration::from_secs(10)).unwrap_or(false);
        let removed = !dir.exists() || std::fs::remove_dir_all(&dir).is_ok();
        gone && removed
    });
    (!done.await.unwrap_or(false)).then_some(why)
}
