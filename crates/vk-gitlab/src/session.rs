//! The session with the hub (SESS-01): dialled again and again, one at a time. It reports what the
//! daemon is and how its runners are, and brings the hub's word on the GitLab server.
//!
//! What it says it asks the loop for, so that it is never older than the moment.

mod about;
mod changes;
mod serve;

use std::sync::Arc;

use tokio::sync::{Notify, mpsc, oneshot};
use vk_hub_client::api::Client;
use vk_hub_proto::relay_session::{RelayReport, RunnerBeat, ServerStatus};

pub use about::About;

/// Messages of the session that may wait for the loop.
const QUEUE: usize = 16;

/// The loop's end of the session.
#[derive(Debug)]
pub struct Line {
    /// What the daemon is, apart from its runners.
    pub about: About,
    /// To ring when what the session says has changed.
    pub changed: Arc<Notify>,
    /// What the session tells.
    pub told: mpsc::Receiver<Told>,
}

/// Begins to hold a session with the hub, in a task that ends with the line.
#[must_use]
pub fn hold(hub: Arc<Client>, about: About) -> Line {
    let (told, telling) = mpsc::channel(QUEUE);
    let changed = Arc::new(Notify::new());
    let link = serve::Link {
        hub,
        version: about.version.clone(),
        changed: Arc::clone(&changed),
        leaf: about.leaf.clone(),
        told,
    };
    tokio::spawn(serve::keep(link));
    Line {
        about,
        changed,
        told: telling,
    }
}

/// What the session tells the loop.
#[derive(Debug)]
pub enum Told {
    /// How the GitLab server stands with the hub's operators. A session that is lost says nothing:
    /// the last word stays in force (SESS-22).
    Server {
        /// Whether runners may ask it for jobs.
        status: ServerStatus,
        /// In words.
        message: Option<String>,
    },
    /// The hub refused the relay for good (SESS-14).
    RefusedForGood {
        /// In words.
        why: String,
        /// Whether it knows the relay no more, rather than not believing its key.
        removed: bool,
    },
    /// What is to be said?
    WhatToSay(oneshot::Sender<Said>),
}

/// What the session says of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// What it is; none before GitLab's key is known, for a server without its key would be another
    /// one (SESS-24, SESS-28).
    pub report: Option<RelayReport>,
    /// How its runners are.
    pub runners: Vec<RunnerBeat>,
}
