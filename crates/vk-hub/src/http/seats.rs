//! How many connections there may be at once, whose they are, and how many were turned away
//! (API-68).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How many connections there may be at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Of relays and other clients.
    pub clients: usize,
    /// Of nodes, a session each.
    pub nodes: usize,
    /// Of those that have not proved who they are. As many more may wait to be among them.
    pub strangers: usize,
}

impl Default for Caps {
    fn default() -> Caps {
        Caps {
            clients: 4096,
            nodes: 20_000,
            strangers: 256,
        }
    }
}

/// Connections that are told so, rather than only closed, when there are too many.
const TOLD: usize = 64;

/// Connections that were answered 503 or closed since the hub started, by what there was too much
/// of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnedAway {
    /// Clients.
    pub clients: u64,
    /// Nodes' sessions.
    pub nodes: u64,
    /// Those that had not proved who they are.
    pub strangers: u64,
    /// Time: bodies that did not come.
    pub late_bodies: u64,
}

/// What there was too much of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Excess {
    Clients,
    Nodes,
    Strangers,
    LateBody,
}

/// The places there are.
#[derive(Clone)]
pub struct Seats(Arc<Inner>);

struct Inner {
    clients: Arc<Semaphore>,
    nodes: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    waiting: Semaphore,
    told: Arc<Semaphore>,
    counts: [AtomicU64; 4],
}

impl Seats {
    /// So many.
    #[must_use]
    pub fn new(caps: Caps) -> Seats {
        let seats = |count| Arc::new(Semaphore::new(count));
        Seats(Arc::new(Inner {
            clients: seats(caps.clients),
            nodes: seats(caps.nodes),
            strangers: seats(caps.strangers),
            waiting: Semaphore::new(caps.strangers),
            told: seats(TOLD),
            counts: Default::default(),
        }))
    }

    /// How many were turned away so far.
    #[must_use]
    pub fn turned_away(&self) -> TurnedAway {
        let [clients, nodes, strangers, late_bodies] = [0, 1, 2, 3].map(|at| {
            self.0
                .counts
                .get(at)
                .map_or(0, |it| it.load(Ordering::Relaxed))
        });
        TurnedAway {
            clients,
            nodes,
            strangers,
            late_bodies,
        }
    }

    pub(crate) fn turn_away(&self, excess: Excess) {
        let at = match excess {
            Excess::Clients => 0,
            Excess::Nodes => 1,
            Excess::Strangers => 2,
            Excess::LateBody => 3,
        };
        if let Some(count) = self.0.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        tracing::warn!(?excess, "too many connections: one was turned away");
    }

    /// A place for a connection that has just been made; some wait a while for one.
    pub(crate) async fn stranger(&self, patience: Duration) -> Option<Place> {
        let strangers = Arc::clone(&self.0.strangers);
        let permit = match Arc::clone(&strangers).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _waits = self.0.waiting.try_acquire().ok()?;
                timeout(patience, strangers.acquire_owned())
                    .await
                    .ok()?
                    .ok()?
            }
        };
        Some(Place {
            seats: self.clone(),
            held: Arc::new(Mutex::new(Held {
                stranger: Some(permit),
                own: None,
            })),
        })
    }

    /// Leave to tell a connection that there are too many.
    pub(crate) fn teller(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.told).try_acquire_owned().ok()
    }
}

/// A connection's place among those there may be. It is a stranger's until it is known whose; the
/// last clone gives it back.
#[derive(Clone)]
pub(crate) struct Place {
    seats: Seats,
    held: Arc<Mutex<Held>>,
}

struct Held {
    stranger: Option<OwnedSemaphorePermit>,
    own: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// Takes a client's seat; false where all are taken, which is counted.
    pub(crate) fn client(&self) -> bool {
        self.take(&self.seats.0.clients, Excess::Clients)
    }

    /// Takes a node's seat; false where all are taken, which is counted.
    pub(crate) fn node(&self) -> bool {
        self.take(&self.seats.0.nodes, Excess::Nodes)
    }

    fn take(&self, from: &Arc<Semaphore>, excess: Excess) -> bool {
        let Ok(seat) = Arc::clone(from).try_acquire_owned() else {
            self.seats.turn_away(excess);
            return false;
        };
        self.held().own = Some(seat);
        true
    }

    /// The other side proved who it is.
    pub(crate) fn known(&self) {
        self.held().stranger = None;
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
