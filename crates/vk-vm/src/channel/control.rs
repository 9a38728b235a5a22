//! The control stream: requests with numbers, answers in any order, and its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use vk_guest_proto::{Answer, ControlToAgent, ControlToHost, Failure, Hello, Op};

use super::connection::{Connection, FrameReader, FrameWriter, frames};
use super::error::{BrokenStream, GuestError};
use crate::death::Lifeline;

/// How often a quiet agent is asked whether it lives.
const PING_EVERY: Duration = Duration::from_secs(15);
/// How long it may take to say so: the guest may be starved by its own job.
const PING_LIMIT: Duration = Duration::from_secs(120);
/// Requests not yet sent; more wait.
const QUEUE: usize = 64;

/// How the control stream ended.
#[derive(Debug, Clone)]
pub(crate) enum ControlEnd {
    /// The agent powers off, as it was asked.
    Bye,
    /// The agent cannot go on.
    Fault(Failure),
    /// The connection or the agent broke.
    Lost(String),
}

/// The host's end of the control stream; the tasks that serve it end with the last clone.
#[derive(Clone)]
pub(crate) struct Control {
    requests: mpsc::Sender<(Op, oneshot::Sender<Answer>)>,
    lifeline: Lifeline,
    _tasks: Arc<JoinSet<()>>,
}

/// Takes the agent's hello and starts to serve the stream. The caller bounds the time.
pub(crate) async fn connect(
    connection: Connection,
    lifeline: &Lifeline,
    ended: watch::Sender<Option<ControlEnd>>,
) -> Result<(Hello, Control), GuestError> {
    let (mut reader, writer) = frames::<ControlToHost>(connection, lifeline);
    let broken = GuestError::broken("say hello");
    let hello = match reader.next().await.map_err(&broken)? {
        Some(ControlToHost::Hello { hello }) => hello,
        Some(ControlToHost::Fault { failure }) => {
            return Err(GuestError::Refused {
                what: "start",
                failure,
            });
        }
        _ => return Err(broken(BrokenStream::OutOfTurn)),
    };
    let (requests, queue) = mpsc::channel(QUEUE);
    let pending = Arc::new(Mutex::new(HashMap::new()));
    let ended = Arc::new(ended);
    let mut tasks = JoinSet::new();
    tasks.spawn(listen(reader, Arc::clone(&pending), Arc::clone(&ended)));
    tasks.spawn(speak(writer, queue, pending, Arc::clone(&ended)));
    tasks.spawn(watch_over(requests.clone(), ended));
    Ok((
        hello,
        Control {
            requests,
            lifeline: lifeline.clone(),
            _tasks: Arc::new(tasks),
        },
    ))
}

type Pending = Arc<Mutex<HashMap<u32, oneshot::Sender<Answer>>>>;
type Ended = Arc<watch::Sender<Option<ControlEnd>>>;

impl Control {
    /// Asks, and waits for the answer at most `limit`.
    pub(super) async fn ask(
        &self,
        what: &'static str,
        op: Op,
        limit: Duration,
    ) -> Result<Answer, GuestError> {
        match timeout(limit, self.ask_without_limit(op)).await {
            Ok(Some(Answer::Failed { failure })) => Err(GuestError::Refused { what, failure }),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(match self.lifeline.death_soon().await {
                Some(death) => GuestError::Dead(death),
                None => {
                    let why = "the control stream is closed".to_owned();
                    GuestError::Broken { what, why }
                }
            }),
            Err(_) => Err(GuestError::Timeout { what, after: limit }),
        }
    }

    async fn ask_without_limit(&self, op: Op) -> Option<Answer> {
        let (sender, answer) = oneshot::channel();
        self.requests.send((op, sender)).await.ok()?;
        answer.await.ok()
    }
}

/// Sends what is asked, each under a number of its own.
async fn speak(
    mut writer: FrameWriter,
    mut queue: mpsc::Receiver<(Op, oneshot::Sender<Answer>)>,
    pending: Pending,
    ended: Ended,
) {
    let mut id: u32 = 0;
    let mut over = ended.subscribe();
    loop {
        let (op, answer) = tokio::select! {
            asked = queue.recv() => match asked {
                Some(asked) => asked,
                None => return,
            },
            // The agent has said its last word and waits for the connection to close.
            _ = over.wait_for(Option::is_some) => return,
        };
        id = id.wrapping_add(1);
        {
            let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
            // Those whose asker gave up, so that an agent that never answers fills nothing.
            pending.retain(|_, answer: &mut oneshot::Sender<Answer>| !answer.is_closed());
            pending.insert(id, answer);
        }
        let sent = writer
            .send_in_time(&ControlToAgent::Request { id, op })
            .await;
        if let Err(BrokenStream::Encode(error)) = &sent {
            // The request is refused here; the stream is as it was.
            tracing::warn!(%error, "a request to the guest is over a bound");
            pending
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&id);
        } else if let Err(error) = sent {
            end(&ended, ControlEnd::Lost(error.to_string()));
            return;
        }
    }
}

/// Hands answers to those who asked, until the stream ends.
async fn listen(mut reader: FrameReader<ControlToHost>, pending: Pending, ended: Ended) {
    let how = loop {
        match reader.next().await {
            Ok(Some(ControlToHost::Answer { id, answer })) => {
                let asked = pending
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&id);
                if let Some(asked) = asked {
                    let _ = asked.send(answer);
                }
            }
            Ok(Some(ControlToHost::Bye)) => break ControlEnd::Bye,
            Ok(Some(ControlToHost::Fault { failure })) => break ControlEnd::Fault(failure),
            Ok(Some(ControlToHost::Hello { .. }) | None) => {
                break ControlEnd::Lost("the agent sent a frame out of turn".to_owned());
            }
            Err(error) => break ControlEnd::Lost(error.to_string()),
        }
    };
    end(&ended, how);
    pending
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
}

/// Asks now and then whether the agent lives.
async fn watch_over(requests: mpsc::Sender<(Op, oneshot::Sender<Answer>)>, ended: Ended) {
    loop {
        tokio::time::sleep(PING_EVERY).await;
        let (sender, answer) = oneshot::channel();
        if requests.send((Op::Ping, sender)).await.is_err() {
            return;
        }
        match timeout(PING_LIMIT, answer).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                let why = format!("the agent does not answer for {} s", PING_LIMIT.as_secs());
                return end(&ended, ControlEnd::Lost(why));
            }
        }
    }
}

/// The first end counts.
fn end(ended: &watch::Sender<Option<ControlEnd>>, how: ControlEnd) {
    ended.send_if_modified(|known| {
        let first = known.is_none();
        if first {
            *known = Some(how);
        }
        first
    });
}
