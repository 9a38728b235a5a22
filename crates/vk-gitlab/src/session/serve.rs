//! Dialling, and one session's messages both ways.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use vk_hub_client::Redial;
use vk_hub_client::api::Client;
use vk_hub_client::session::{Messages, Opening, Received, SessionError, open_relay};
use vk_hub_proto::Incarnation;
use vk_hub_proto::node_session::{RefusedCode, VersionRange};
use vk_hub_proto::relay_session::{HubRelayMessage, RelayMessage, RelayReport, ServerStatus};

use super::changes::Changes;
use super::{Said, Told};

/// The versions this daemon speaks (SESS-16).
const VERSIONS: VersionRange = VersionRange { min: 1, max: 1 };
/// Pauses between dials grow to this (SESS-21).
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A session that lasted so long was a good one: the next pause is short again. One that another
/// daemon of the same relay takes over does not last.
const GOOD: Duration = Duration::from_secs(60);
/// How long a session's end may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// What a session needs.
pub(super) struct Link {
    /// The way to the hub, and who signs.
    pub(super) hub: Arc<Client>,
    /// The program's version.
    pub(super) version: String,
    /// Rings when what is to be said has changed.
    pub(super) changed: Arc<Notify>,
    /// The certificate GitLab showed last.
    pub(super) leaf: watch::Receiver<Option<Vec<u8>>>,
    /// The loop.
    pub(super) told: mpsc::Sender<Told>,
}

/// Why a session is no more.
enum Over {
    /// The daemon ends.
    Daemon,
    /// It broke, or did not come about.
    Session(SessionError),
}

impl From<SessionError> for Over {
    fn from(error: SessionError) -> Over {
        Over::Session(error)
    }
}

/// Keeps a session until the daemon ends or the hub refuses for good (SESS-02, SESS-21).
pub(super) async fn keep(mut link: Link) {
    let mut redial = Redial::up_to(LONGEST_PAUSE);
    let mut incarnation = [0; 16];
    // Without randomness it is the same in each life: it tells lives apart for people alone.
    let _ = aws_lc_rs::rand::fill(&mut incarnation);
    let incarnation = Incarnation::from_bytes(incarnation);
    loop {
        let begun = Instant::now();
        let Err(over) = one(&mut link, incarnation).await;
        match over {
            Over::Daemon => return,
            Over::Session(error) if error.is_for_good() => {
                let removed = matches!(
                    error,
                    SessionError::Refused {
                        code: RefusedCode::NotEnrolled | RefusedCode::Revoked,
                        ..
                    }
                );
                let why = chain(&error);
                // A daemon that ends hears nothing more.
                let _ = link.told.send(Told::RefusedForGood { why, removed }).await;
                return;
            }
            Over::Session(error) => {
                let hub = link.hub.dialer().url();
                tracing::warn!(%hub, error = chain(&error), "no session with the hub");
            }
        }
        if begun.elapsed() >= GOOD {
            redial.reset();
        }
        tokio::select! {
            () = sleep(redial.pause()) => {}
            () = link.told.closed() => return,
        }
    }
}

/// One session from dial to end.
async fn one(link: &mut Link, incarnation: Incarnation) -> Result<std::convert::Infallible, Over> {
    let signer = link.hub.signer();
    let who = Opening {
        id: signer.relay,
        incarnation,
        key: &signer.key,
        versions: VERSIONS,
        program: &link.version,
    };
    let opened = open_relay(link.hub.dialer(), &who).await?;
    let hub = link.hub.dialer().url();
    tracing::info!(%hub, version = opened.version, "a session with the hub is open");
    let mut running = Running {
        link,
        heartbeat: opened.heartbeat,
        messages: opened.messages,
        reported: None,
        changes: Changes::new(Instant::now()),
        withheld: None,
        unsaid: false,
    };
    let over = running.run().await;
    let _ = timeout(GOODBYE, running.messages.close()).await;
    over
}

struct Running<'a> {
    link: &'a mut Link,
    heartbeat: Duration,
    messages: Messages<RelayMessage, HubRelayMessage>,
    /// What was reported last in this session.
    reported: Option<RelayReport>,
    /// How often another server may be reported.
    changes: Changes,
    /// When one that waits may be.
    withheld: Option<Instant>,
    /// The server is another one than the hub was told of: its word is about that one, and does not
    /// count until a report went out again.
    unsaid: bool,
}

impl Running<'_> {
    async fn run(&mut self) -> Result<std::convert::Infallible, Over> {
        let silence = self.heartbeat * 3;
        let mut beat = interval(self.heartbeat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        let changed = Arc::clone(&self.link.changed);
        loop {
            tokio::select! {
                received = self.messages.receive() => {
                    last = Instant::now();
                    if let Received::Message(message) = received? {
                        self.take(message).await?;
                    }
                }
                _ = beat.tick() => self.say().await?,
                () = changed.notified() => self.say().await?,
                Ok(()) = self.link.leaf.changed() => self.say().await?,
                () = at(self.withheld) => self.say().await?,
                () = self.link.told.closed() => return Err(Over::Daemon),
                () = sleep_until(last + silence) => return Err(SessionError::Silent(silence).into()),
            }
        }
    }

    /// Says how the runners are, and before that what the daemon is where that has changed.
    async fn say(&mut self) -> Result<(), Over> {
        let (answer, said) = oneshot::channel();
        let asked = self.link.told.send(Told::WhatToSay(answer)).await;
        asked.map_err(|_| Over::Daemon)?;
        let Said { report, runners } = said.await.map_err(|_| Over::Daemon)?;
        self.withheld = None;
        if let Some(report) = report
            && (self.unsaid || self.reported.as_ref() != Some(&report))
        {
            if self.may_report(&report) {
                // The hub answers each report, also one of the server it knew before.
                self.unsaid = false;
                self.reported = Some(report.clone());
                self.send(&RelayMessage::Report(Box::new(report))).await?;
            } else if !std::mem::replace(&mut self.unsaid, true) {
                self.tell_unsaid().await?;
            }
        }
        self.send(&RelayMessage::Heartbeat { runners }).await
    }

    /// Whether a report goes out now: the first does, and one of the same server. Another server's may
    /// have to wait for its turn.
    fn may_report(&mut self, report: &RelayReport) -> bool {
        let before = self.reported.as_ref();
        if before.is_none_or(|before| before.server == report.server) {
            return true;
        }
        self.withheld = self.changes.take(Instant::now()).err();
        self.withheld.is_none()
    }

    /// No runner asks a server of which the hub does not know (SESS-09, SESS-13).
    async fn tell_unsaid(&mut self) -> Result<(), Over> {
        let why = "the GitLab server or its key changed again, more often than the hub is told: it \
                   is asked about this one shortly";
        let told = Told::Server {
            status: ServerStatus::Pending,
            message: Some(why.to_owned()),
        };
        self.link.told.send(told).await.map_err(|_| Over::Daemon)
    }

    /// Sends, within the time that silence may last: a hub that reads nothing is gone.
    async fn send(&mut self, message: &RelayMessage) -> Result<(), Over> {
        let silence = self.heartbeat * 3;
        let sent = timeout(silence, self.messages.send(message)).await;
        Ok(sent.map_err(|_| SessionError::Silent(silence))??)
    }

    async fn take(&mut self, message: HubRelayMessage) -> Result<(), Over> {
        match message {
            HubRelayMessage::Server { .. } if self.unsaid => Ok(()),
            HubRelayMessage::Server { status, message } => {
                let told = self.link.told.send(Told::Server { status, message }).await;
                told.map_err(|_| Over::Daemon)
            }
            HubRelayMessage::Refused { code, reason } => {
                Err(SessionError::Refused { code, reason }.into())
            }
            HubRelayMessage::Challenge { .. } | HubRelayMessage::Welcome { .. } => {
                let why = "a handshake's message came in an open session".to_owned();
                Err(SessionError::Protocol(why).into())
            }
            HubRelayMessage::Other => Ok(()),
        }
    }
}

/// Until then, or for ever.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
