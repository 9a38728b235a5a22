//! The job process's side of its socket.

use std::io;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::process::Order;
use super::wire::{FrameReader, FromJob, Progress, ToJob, versions, write_frame};

/// Connections at once; the daemon needs one.
const CONNECTIONS: usize = 8;
/// How long a daemon may take to take a frame, and to say its first.
const FRAME: Duration = Duration::from_secs(10);

/// Accepts daemons until the job is over.
pub(crate) struct Server {
    over: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(crate) fn start(
        listener: UnixListener,
        orders: mpsc::Sender<Order>,
        progress: watch::Receiver<Progress>,
    ) -> Server {
        let (over, ends) = watch::channel(false);
        let task = tokio::spawn(accept(listener, orders, progress, ends));
        Server { over, task }
    }

    /// Lets those who are subscribed read the result, and ends.
    pub(crate) async fn farewell(mut self, within: Duration) {
        self.over.send_replace(true);
        if timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

async fn accept(
    listener: UnixListener,
    orders: mpsc::Sender<Order>,
    progress: watch::Receiver<Progress>,
    mut ends: watch::Receiver<bool>,
) {
    let mut subscribers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if subscribers.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    let subscriber = serve(stream, orders.clone(), progress.clone());
                    subscribers.spawn(subscriber);
                }
                // Mostly too many open files: the next try may do better.
                Err(error) => {
                    tracing::warn!(%error, "a daemon's connection is lost");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = subscribers.join_next(), if !subscribers.is_empty() => {}
            () = over(&mut ends) => break,
        }
    }
    // Each ends with the result: all that is left is to wait for the slowest.
    while subscribers.join_next().await.is_some() {}
}

async fn over(ends: &mut watch::Receiver<bool>) {
    // A server that is gone ends too.
    let _ = ends.wait_for(|over| *over).await;
}

async fn serve(
    stream: UnixStream,
    orders: mpsc::Sender<Order>,
    progress: watch::Receiver<Progress>,
) {
    if let Err(error) = converse(stream, &orders, progress).await {
        tracing::info!(%error, "a daemon's connection ended");
    }
}

async fn converse(
    stream: UnixStream,
    orders: &mpsc::Sender<Order>,
    mut progress: watch::Receiver<Progress>,
) -> io::Result<()> {
    let (from, mut to) = stream.into_split();
    let mut frames = FrameReader::new(from);
    let first = timeout(FRAME, frames.next::<ToJob>()).await??;
    let Some(ToJob::Subscribe { versions: theirs }) = first else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let versions = versions();
    let common = versions.highest_common(theirs);
    let answer = match common {
        Some(version) => FromJob::Subscribed { version },
        None => FromJob::Refused { versions },
    };
    write_frame(&mut to, &answer).await?;
    progress.mark_changed();
    loop {
        tokio::select! {
            changed = progress.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let state = progress.borrow_and_update().clone();
                let over = state.result.is_some();
                if common.is_none() {
                    match over {
                        true => return Ok(()),
                        false => continue,
                    }
                }
                let state = FromJob::State(Box::new(state));
                timeout(FRAME, write_frame(&mut to, &state)).await??;
                if over {
                    return Ok(());
                }
            }
            said = frames.next::<ToJob>() => {
                let order = match said? {
                    None => return Ok(()),
                    Some(ToJob::Grant) => Order::Grant,
                    Some(ToJob::Deny { short }) => Order::Deny(short),
                    Some(ToJob::Stop { how }) => Order::Stop(how),
                    Some(ToJob::Subscribe { .. } | ToJob::Other) => continue,
                };
                // A job that reads no orders any more is ending.
                let _ = orders.send(order).await;
            }
        }
    }
}
