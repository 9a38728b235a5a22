//! Dialling, and one session's messages both ways.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use vk_hub_client::session::{Messages, Opening, Received, SessionError, open_node};
use vk_hub_client::{Dialer, Key, Redial};
use vk_hub_proto::dispatch::{Chunk, NodeJobMessage};
use vk_hub_proto::node_session::{
    Admission, HubMessage, Inventory, JOBS, NodeMessage, STEERING, VersionRange, Versions,
};
use vk_hub_proto::{Incarnation, JobId, NodeId};

use super::outbox::{Next, Outbox};
use crate::config::Config;
use crate::host;
use crate::state_dir::StateDir;

/// The versions this node speaks.
const VERSIONS: VersionRange = VersionRange {
    min: STEERING,
    max: JOBS,
};
/// Pauses between dials grow to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often the inventory is looked at anew.
const INVENTORY: Duration = Duration::from_secs(60);
/// How long a session's end may take.
const GOODBYE: Duration = Duration::from_secs(2);

type NodeMessages = Messages<NodeMessage, HubMessage>;

/// What the session tells the daemon.
pub(crate) enum Told {
    /// One is open.
    Opened {
        /// Its number.
        session: u64,
        /// Its version.
        version: u32,
        /// What is put here is sent.
        outbox: Arc<Outbox>,
    },
    /// The hub said something.
    Hub {
        /// In which session.
        session: u64,
        /// What.
        message: Box<HubMessage>,
    },
    /// One is over.
    Closed {
        /// Which.
        session: u64,
    },
}

/// What a session needs.
pub(crate) struct Link {
    pub(crate) dialer: Dialer,
    pub(crate) key: Key,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) config: Config,
    pub(crate) state: StateDir,
    pub(crate) versions: Versions,
    pub(crate) admission: watch::Receiver<Admission>,
    pub(crate) told: mpsc::Sender<Told>,
}

/// Keeps a session until told to stop, or until the hub refuses for good.
///
/// # Errors
/// The refusal.
pub(crate) async fn keep(link: Link, mut stop: oneshot::Receiver<()>) -> Result<(), SessionError> {
    let mut redial = Redial::up_to(LONGEST_PAUSE);
    let mut number = 0;
    loop {
        number += 1;
        let error = tokio::select! {
            error = one(&link, number, &mut redial) => error,
            _ = &mut stop => return Ok(()),
        };
        match error {
            Some(error) if error.is_for_good() => return Err(error),
            Some(error) => {
                tracing::warn!(hub = %link.dialer.url(), error = chain(&error), "no session with the hub");
            }
            None => {}
        }
        tokio::select! {
            () = sleep(redial.pause()) => {}
            _ = &mut stop => return Ok(()),
        }
    }
}

/// One session from dial to end; none where the daemon ended it.
async fn one(link: &Link, session: u64, redial: &mut Redial) -> Option<SessionError> {
    let who = Opening {
        id: link.node,
        incarnation: link.incarnation,
        key: &link.key,
        versions: VERSIONS,
        program: &link.versions.vk,
    };
    let opened = match open_node(&link.dialer, &who).await {
        Ok(opened) => opened,
        Err(error) => return Some(error),
    };
    redial.reset();
    let hub = link.dialer.url();
    tracing::info!(%hub, version = opened.version, "a session with the hub is open");
    let mut running = Running {
        link,
        session,
        heartbeat: opened.heartbeat,
        messages: opened.messages,
        outbox: Arc::new(Outbox::default()),
        inventory: None,
    };
    let ended = running.run(opened.version).await;
    running.outbox.close();
    let _ = timeout(GOODBYE, running.messages.close()).await;
    // A daemon that ends hears nothing more.
    let _ = link.told.send(Told::Closed { session }).await;
    ended.err()
}

struct Running<'a> {
    link: &'a Link,
    session: u64,
    heartbeat: Duration,
    messages: NodeMessages,
    outbox: Arc<Outbox>,
    inventory: Option<Inventory>,
}

impl Running<'_> {
    async fn run(&mut self, version: u32) -> Result<(), SessionError> {
        self.send_inventory().await?;
        let opened = Told::Opened {
            session: self.session,
            version,
            outbox: Arc::clone(&self.outbox),
        };
        if self.link.told.send(opened).await.is_err() {
            return Ok(());
        }
        let silence = self.heartbeat * 3;
        let mut beat = interval(self.heartbeat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = interval(INVENTORY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.reset();
        let mut last = Instant::now();
        loop {
            tokio::select! {
                received = self.messages.receive() => {
                    last = Instant::now();
                    if !take(self.link, self.session, received?).await? {
                        return Ok(());
                    }
                }
                next = self.outbox.next() => match next {
                    Next::Closed => return Ok(()),
                    Next::Message(message) => self.send(&message).await?,
                    Next::Output { job, offset, len } => self.send_output(job, offset, len).await?,
                },
                _ = beat.tick() => self.send_heartbeat().await?,
                _ = look.tick() => self.send_inventory().await?,
                () = sleep_until(last + silence) => return Err(SessionError::Silent(silence)),
            }
        }
    }

    /// Sends, within the time that silence may last: a hub that reads nothing is gone.
    async fn send(&mut self, message: &NodeMessage) -> Result<(), SessionError> {
        let sending = self.messages.send(message);
        let silence = self.heartbeat * 3;
        timeout(silence, sending)
            .await
            .map_err(|_| SessionError::Silent(silence))?
    }

    async fn send_heartbeat(&mut self) -> Result<(), SessionError> {
        let mut beat = blocking(&self.link.state, host::heartbeat).await?;
        beat.admission = Some(*self.link.admission.borrow());
        self.send(&NodeMessage::Heartbeat(beat)).await
    }

    /// Sends the inventory, where it is not what was sent last.
    async fn send_inventory(&mut self) -> Result<(), SessionError> {
        let (config, versions) = (self.link.config.clone(), self.link.versions.clone());
        let inventory = blocking(&self.link.state, move |state| {
            host::inventory(&config, state, versions)
        })
        .await?;
        if self.inventory.as_ref() == Some(&inventory) {
            return Ok(());
        }
        self.inventory = Some(inventory.clone());
        self.send(&NodeMessage::Inventory(Box::new(inventory)))
            .await
    }

    async fn send_output(
        &mut self,
        job: JobId,
        offset: u64,
        len: usize,
    ) -> Result<(), SessionError> {
        let path = self.link.state.job(job).join("output");
        let read = blocking(&self.link.state, move |_| read_at(&path, offset, len)).await?;
        let bytes = match read {
            Ok(bytes) => bytes,
            // The hub recorded the job, or disowned it: nobody waits for these.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                tracing::error!(%job, offset, len, %error, "output cannot be read");
                let why = format!("output of job {job} cannot be read");
                return Err(SessionError::Protocol(why));
            }
        };
        let data = Chunk::try_from(bytes).map_err(|why| SessionError::Protocol(why.to_string()))?;
        let output = NodeJobMessage::Output { job, offset, data };
        self.send(&NodeMessage::Job(output)).await
    }
}

/// Takes a message; false where the daemon is gone.
async fn take(
    link: &Link,
    session: u64,
    received: Received<HubMessage>,
) -> Result<bool, SessionError> {
    let message = match received {
        Received::Alive => return Ok(true),
        Received::Message(message) => message,
    };
    if let HubMessage::Refused { code, reason } = message {
        return Err(SessionError::Refused { code, reason });
    }
    if matches!(
        message,
        HubMessage::Challenge { .. } | HubMessage::Welcome { .. }
    ) {
        let why = "a handshake's message came in an open session".to_owned();
        return Err(SessionError::Protocol(why));
    }
    let message = Box::new(message);
    let told = Told::Hub { session, message };
    Ok(link.told.send(told).await.is_ok())
}

fn read_at(path: &PathBuf, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = vec![0; len];
    std::fs::File::open(path)?.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

async fn blocking<T: Send + 'static>(
    state: &StateDir,
    work: impl FnOnce(&StateDir) -> T + Send + 'static,
) -> Result<T, SessionError> {
    let state = state.clone();
    tokio::task::spawn_blocking(move || work(&state))
        .await
        .map_err(|error| SessionError::Protocol(error.to_string()))
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
