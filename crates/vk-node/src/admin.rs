//! The operator's socket: one JSON call, one JSON answer.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use vk_hub_proto::node_session::NodeState;

use crate::job::socket::{connect, listen};
use crate::state_dir::StateDir;
use crate::view::{JobView, StatusView};

/// A call at most.
const CALL_BYTES: u64 = 64 << 10;
/// An answer at most.
const ANSWER_BYTES: u64 = 16 << 20;
/// How long each way may take.
const WAY: Duration = Duration::from_secs(30);
/// Calls at once.
const CALLS: usize = 32;

/// What an operator may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Call {
    /// How the node stands: a [`StatusView`].
    Status,
    /// Its jobs, past and present: a list of [`JobView`]s.
    Jobs,
    /// Take no new work, let present work end: nothing, once that is kept.
    Drain,
    /// The same, for work on the host: nothing, once that is kept.
    Maintain,
    /// Take work again: nothing, once that is kept.
    Undrain,
    /// How the node stands, as soon as that differs from what the asker knows, or after a while: a
    /// [`StatusView`].
    Change {
        /// The state as known.
        state: NodeState,
        /// The number of jobs as known.
        jobs: usize,
    },
    /// End every job `interrupted`, as before the host stops (FAIL-12).
    InterruptJobs,
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    v: u32,
    call: Call,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Ok(serde_json::Value),
    Err(String),
}

/// A call without an answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No daemon listens.
    #[error(
        "no vk node runs on {state_dir}: start it with `systemctl start vk-node`, or with `vk node run` as its own user"
    )]
    NotRunning {
        /// The state directory.
        state_dir: String,
    },
    /// It did not answer.
    #[error("the vk node on {state_dir} does not answer")]
    NoAnswer {
        /// The state directory.
        state_dir: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It refused.
    #[error("the vk node refused: {0}")]
    Refused(String),
}

/// Asks the daemon of a state directory how it stands.
///
/// # Errors
/// See [`CallError`].
pub async fn status(state: &StateDir) -> Result<StatusView, CallError> {
    call(state, Call::Status).await
}

/// Asks the daemon of a state directory for its jobs.
///
/// # Errors
/// See [`CallError`].
pub async fn jobs(state: &StateDir) -> Result<Vec<JobView>, CallError> {
    call(state, Call::Jobs).await
}

/// Has the daemon of a state directory take no new work, also after a restart; jobs and reservations
/// that it has come to their end.
///
/// # Errors
/// See [`CallError`].
pub async fn drain(state: &StateDir) -> Result<(), CallError> {
    call(state, Call::Drain).await
}

/// The same, for work on the host: once nothing is left the node is in maintenance, which only
/// [`undrain`] ends.
///
/// # Errors
/// See [`CallError`].
pub async fn maintain(state: &StateDir) -> Result<(), CallError> {
    call(state, Call::Maintain).await
}

/// Ends a drain.
///
/// # Errors
/// See [`CallError`].
pub async fn undrain(state: &StateDir) -> Result<(), CallError> {
    call(state, Call::Undrain).await
}

/// How the node stands, once its state or its number of jobs is another one than known, or after
/// some 20 seconds.
///
/// # Errors
/// See [`CallError`].
pub async fn change(state: &StateDir, known: &StatusView) -> Result<StatusView, CallError> {
    let (known, jobs) = (known.state, known.jobs);
    call(state, Call::Change { state: known, jobs }).await
}

/// Has the daemon of a state directory end every job `interrupted`.
///
/// # Errors
/// See [`CallError`].
pub async fn interrupt_jobs(state: &StateDir) -> Result<(), CallError> {
    call(state, Call::InterruptJobs).await
}

async fn call<T: DeserializeOwned>(state: &StateDir, call: Call) -> Result<T, CallError> {
    let state_dir = state.root().display().to_string();
    let no_answer = |source| CallError::NoAnswer {
        state_dir: state_dir.clone(),
        source,
    };
    let socket = state.admin_socket();
    let directory = socket.parent().unwrap_or(Path::new("."));
    let stream = match connect(directory, "admin.sock").await {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Err(CallError::NotRunning { state_dir });
        }
        Err(error) => return Err(no_answer(error)),
    };
    let reply = timeout(2 * WAY, exchange(stream, call))
        .await
        .map_err(|late| no_answer(late.into()))?
        .map_err(no_answer)?;
    match reply {
        Reply::Ok(value) => {
            serde_json::from_value(value).map_err(|why| no_answer(io::Error::other(why)))
        }
        Reply::Err(why) => Err(CallError::Refused(why)),
    }
}

async fn exchange(mut stream: UnixStream, call: Call) -> io::Result<Reply> {
    let json = serde_json::to_vec(&Envelope { v: 1, call })?;
    stream.write_all(&json).await?;
    stream.shutdown().await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES).read_to_end(&mut answer).await?;
    Ok(serde_json::from_slice(&answer)?)
}

/// Listens in the state directory.
pub(crate) fn listener(state: &StateDir) -> io::Result<UnixListener> {
    let socket = state.admin_socket();
    let directory = socket.parent().unwrap_or(Path::new("."));
    let listener = listen(directory, "admin.sock")?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Answers calls.
pub(crate) async fn serve<F>(listener: UnixListener, answer: impl Fn(Call) -> F)
where
    F: Future<Output = Result<serde_json::Value, String>> + Send + 'static,
{
    let mut calls = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if calls.len() < CALLS => match accepted {
                Ok((mut stream, _)) => {
                    let Ok(Ok(call)) = timeout(WAY, read(&mut stream)).await else { continue };
                    let answered = call.map(&answer);
                    calls.spawn(async move {
                        let reply = match answered {
                            Ok(answered) => answered.await.map_or_else(Reply::Err, Reply::Ok),
                            Err(why) => Reply::Err(why),
                        };
                        // An operator who left needs no answer.
                        let _ = timeout(WAY, write(&mut stream, &reply)).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "an operator's call is lost");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = calls.join_next(), if !calls.is_empty() => {}
        }
    }
}

async fn read(stream: &mut UnixStream) -> io::Result<Result<Call, String>> {
    let mut json = Vec::new();
    stream.take(CALL_BYTES).read_to_end(&mut json).await?;
    Ok(match serde_json::from_slice::<Envelope>(&json) {
        Ok(Envelope { v: 1, call }) => Ok(call),
        Ok(Envelope { v, .. }) => Err(format!("this node does not speak version {v} of calls")),
        Err(why) => Err(format!("the call makes no sense: {why}")),
    })
}

async fn write(stream: &mut UnixStream, reply: &Reply) -> io::Result<()> {
    stream.write_all(&serde_json::to_vec(reply)?).await?;
    stream.shutdown().await
}
