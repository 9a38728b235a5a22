//! The owner's side: starts the stages, gives orders, hears how programs end.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, sendmsg, socketpair,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, Interest};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::ConfineError;
use super::order::{Exit, Order, PACKET_MAX, Report};
use super::program::{Confinement, Program, Walls};
use crate::console::Console;
use crate::sys;

/// A stage is an exec and a few system calls; a host so busy that this passes cannot run a VM.
const STAGE: Duration = Duration::from_secs(20);
/// What a holder that ended said last is read at once.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// What is kept of the stages' complaints before there is a holder.
const COMPLAINTS_MAX: u64 = 4096;

/// The namespace that everything of one VM lives in, and the process that holds it.
///
/// Dropping it closes the holder's socket: the kernel then ends all that was launched.
#[derive(Debug)]
pub struct Holder {
    root: Child,
    root_pid: u32,
    walls: Walls,
    socket: Arc<AsyncFd<OwnedFd>>,
    state: Arc<Mutex<State>>,
    /// What the stages complain of.
    said: Arc<Console>,
    listeners: [Listener; 2],
    next: AtomicU32,
}

/// The task that hears the holder; it has a handle of the socket, and ends with the [`Holder`].
#[derive(Debug)]
struct Listener(JoinHandle<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A program that was launched.
#[derive(Debug, Clone)]
pub struct Launched {
    id: u32,
    exit: watch::Receiver<Option<Exit>>,
}

#[derive(Debug, Default)]
struct State {
    starting: HashMap<u32, oneshot::Sender<Result<(), String>>>,
    running: HashMap<u32, watch::Sender<Option<Exit>>>,
    gone: bool,
}

impl Holder {
    /// Starts the holder and waits until it is ready.
    ///
    /// # Errors
    /// [`ConfineError::Walls`] where this host does not allow the namespaces.
    pub async fn start(confinement: &Confinement) -> Result<Self, ConfineError> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|e| ConfineError::io("make the holder's socket")(e.into()))?;
        rustix::io::ioctl_fionbio(&ours, true)
            .map_err(|e| ConfineError::io("set up the holder's socket")(e.into()))?;
        let mut enter = Command::new(&confinement.helper);
        enter.args(["guest", "confine", "enter"]);
        if confinement.walls == Walls::Off {
            enter.arg("--open");
        }
        enter
            .env_clear()
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut root = enter.spawn().map_err(|source| ConfineError::Helper {
            helper: confinement.helper.clone(),
            source,
        })?;
        let complaints = root.stderr.take();
        let root_pid = root.id().unwrap_or_default();
        // The command still holds the holder's end: with it the socket would never close.
        drop(enter);
        let socket = sys::watch(ours).map_err(ConfineError::io("watch the holder's socket"))?;
        if let Err(error) = first_word(&socket).await {
            let why = ended(&mut root, complaints, error).await;
            return Err(ConfineError::Walls { why });
        }
        let socket = Arc::new(socket);
        let state = Arc::new(Mutex::new(State::default()));
        let said = Arc::new(Console::default());
        let listeners = [
            Listener(tokio::spawn(listen(
                Arc::clone(&socket),
                Arc::clone(&state),
            ))),
            Listener(tokio::spawn(record(Arc::clone(&said), complaints))),
        ];
        let (walls, next) = (confinement.walls, AtomicU32::new(0));
        Ok(Self {
            root,
            root_pid,
            walls,
            socket,
            state,
            said,
            listeners,
            next,
        })
    }

    /// The process at the root of everything launched here, in the owner's PID namespace.
    #[must_use]
    pub fn root_pid(&self) -> u32 {
        self.root_pid
    }

    /// How strictly what is launched here is confined.
    #[must_use]
    pub fn walls(&self) -> Walls {
        self.walls
    }

    /// Starts a program whose output goes to these two descriptors.
    ///
    /// It may still fail in its own stage: then it exits, and has said why on `stderr`.
    ///
    /// # Errors
    /// [`ConfineError::Launch`] when the holder refuses, [`ConfineError::HolderGone`].
    pub async fn launch(
        &self,
        program: &Program,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) -> Result<Launched, ConfineError> {
        self.launch_with(program, stdout, stderr, None).await
    }

    /// As [`Holder::launch`], with the descriptor that a program which [inherits](Program::inherits)
    /// one gets as number [`INHERITED`](super::INHERITED).
    ///
    /// # Errors
    /// As [`Holder::launch`].
    pub async fn launch_with(
        &self,
        program: &Program,
        stdout: OwnedFd,
        stderr: OwnedFd,
        inherited: Option<OwnedFd>,
    ) -> Result<Launched, ConfineError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (started, start) = oneshot::channel();
        let (ending, exit) = watch::channel(None);
        if !lock(&self.state).expect(id, started, ending) {
            return Err(self.gone().await);
        }
        let order = Order::Launch {
            id,
            program: program.clone(),
        };
        let descriptors: Vec<_> = [stdout, stderr].into_iter().chain(inherited).collect();
        let sent = self.send(&order, &descriptors).await;
        // The holder has them now: an end of a pipe that stayed open here would never be seen closed.
        drop(descriptors);
        let outcome = match sent {
            Ok(()) => timeout(STAGE, start).await,
            Err(e) => Ok(Ok(Err(e.to_string()))),
        };
        let why = match outcome {
            Ok(Ok(Ok(()))) => return Ok(Launched { id, exit }),
            Ok(Ok(Err(why))) => why,
            Ok(Err(_)) => return Err(self.gone().await),
            Err(_) => {
                let why = format!("no answer within {} s", STAGE.as_secs());
                return Err(ConfineError::HolderGone { why });
            }
        };
        lock(&self.state).running.remove(&id);
        Err(ConfineError::Launch {
            program: program.path.clone(),
            why,
        })
    }

    /// Kills a program, if it still runs; its [`Launched`] tells of the end.
    ///
    /// # Errors
    /// [`ConfineError::HolderGone`].
    pub async fn kill(&self, launched: &Launched) -> Result<(), ConfineError> {
        let order = Order::Kill { id: launched.id };
        self.send(&order, &[])
            .await
            .map_err(|e| ConfineError::HolderGone { why: e.to_string() })
    }

    /// Ends everything launched here, and waits until it is gone.
    ///
    /// # Errors
    /// [`ConfineError::Io`] when the end cannot be seen within 20 s.
    pub async fn end(self) -> Result<(), ConfineError> {
        let Self {
            mut root,
            socket,
            listeners,
            ..
        } = self;
        drop((listeners, socket));
        let gone = timeout(STAGE, root.wait()).await;
        gone.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map(drop)
            .map_err(ConfineError::io("see the end of a VM's processes"))
    }

    /// That the holder ended, with what it said last.
    async fn gone(&self) -> ConfineError {
        let _ = timeout(LAST_WORDS, self.said.whole()).await;
        let said = self.said.tail();
        let why = if said.is_empty() {
            "it ended".to_owned()
        } else {
            said
        };
        ConfineError::HolderGone { why }
    }

    async fn send(&self, order: &Order, descriptors: &[OwnedFd]) -> io::Result<()> {
        let packet = serde_json::to_vec(order)?;
        if packet.len() > PACKET_MAX {
            return Err(io::Error::other("the program's description is too long"));
        }
        let rights: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let send = |socket: &OwnedFd| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            if !rights.is_empty() {
                beside.push(SendAncillaryMessage::ScmRights(&rights));
            }
            let packet = [IoSlice::new(&packet)];
            sendmsg(socket, &packet, &mut beside, SendFlags::NOSIGNAL).map_err(io::Error::from)
        };
        let sent = self.socket.async_io(Interest::WRITABLE, send);
        timeout(STAGE, sent)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        Ok(())
    }
}

impl Launched {
    /// How the program ended; waits for it.
    pub async fn exit(&self) -> Exit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(ended) => (*ended).unwrap_or(Exit::WithHolder),
            Err(_) => Exit::WithHolder,
        }
    }

    /// How the program ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Exit> {
        let known = *self.exit.borrow();
        known.or_else(|| self.exit.has_changed().is_err().then_some(Exit::WithHolder))
    }
}

/// Waits for the holder to say that it is ready.
async fn first_word(socket: &AsyncFd<OwnedFd>) -> io::Result<()> {
    match timeout(STAGE, report(socket)).await {
        Ok(Ok(Some(Report::Ready))) => Ok(()),
        Ok(Ok(Some(_))) => Err(io::Error::other("the holder speaks out of turn")),
        Ok(Ok(None)) => Err(io::Error::other("the holder ended at once")),
        Ok(Err(e)) => Err(e),
        Err(_) => Err(io::Error::other(format!(
            "no holder within {} s",
            STAGE.as_secs()
        ))),
    }
}

/// What is known of stages that failed: what they said, else `error`. Nothing of them is left.
async fn ended(root: &mut Child, complaints: Option<ChildStderr>, error: io::Error) -> String {
    let _ = root.start_kill();
    let mut said = Vec::new();
    if let Some(complaints) = complaints {
        let read = complaints.take(COMPLAINTS_MAX);
        let mut read = std::pin::pin!(read);
        let _ = timeout(STAGE, read.read_to_end(&mut said)).await;
    }
    let _ = timeout(STAGE, root.wait()).await;
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    if said.is_empty() {
        error.to_string()
    } else {
        said
    }
}

async fn record(said: Arc<Console>, complaints: Option<ChildStderr>) {
    if let Some(complaints) = complaints {
        said.record(complaints).await;
    }
}

/// Takes the holder's reports until it is gone.
async fn listen(socket: Arc<AsyncFd<OwnedFd>>, state: Arc<Mutex<State>>) {
    while let Ok(Some(report)) = report(&socket).await {
        lock(&state).take(report);
    }
    let mut state = lock(&state);
    state.gone = true;
    state.starting.clear();
    state.running.clear();
}

impl State {
    /// Expects a program to start and then to end; false once nothing can be expected any more.
    fn expect(
        &mut self,
        id: u32,
        started: oneshot::Sender<Result<(), String>>,
        ending: watch::Sender<Option<Exit>>,
    ) -> bool {
        if !self.gone {
            self.starting.insert(id, started);
            self.running.insert(id, ending);
        }
        !self.gone
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Ready => {}
            Report::Started { id } => {
                if let Some(start) = self.starting.remove(&id) {
                    let _ = start.send(Ok(()));
                }
            }
            Report::Refused { id, why } => {
                if let Some(start) = self.starting.remove(&id) {
                    let _ = start.send(Err(why));
                }
            }
            Report::Exited { id, exit } => {
                if let Some(ending) = self.running.remove(&id) {
                    ending.send_replace(Some(exit));
                }
            }
        }
    }
}

/// The holder's next report; `None` once it is gone.
async fn report(socket: &AsyncFd<OwnedFd>) -> io::Result<Option<Report>> {
    let receive = |socket: &OwnedFd| {
        let mut packet = vec![0; PACKET_MAX];
        let (_, length) = recv(socket, &mut packet, RecvFlags::empty())?;
        packet.truncate(length);
        Ok(packet)
    };
    let packet = socket.async_io(Interest::READABLE, receive).await?;
    if packet.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&packet)?))
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program that holds the stages when nothing else is configured: this one.
impl Default for Confinement {
    fn default() -> Self {
        Self {
            helper: PathBuf::from(super::OWN_PROGRAM),
            walls: Walls::Required,
        }
    }
}
