//! Relays: the server each serves, and their sessions (SESS-08, SESS-24 to SESS-27).

mod apply;
mod report;
mod session;
mod status;

use std::time::Duration;

use vk_hub_proto::RelayId;
use vk_hub_proto::node_session::VersionRange;
use vk_hub_proto::relay_session::{RelayReport, RunnerBeat, ServerStatus};

use vk_step::Now;

use crate::approvals::ServerNumber;
use crate::{Record, SessionHandle};

pub use status::RelayStatus;

/// The versions of the relay's session a hub with this core speaks (SESS-16).
pub const RELAY_VERSIONS: VersionRange = VersionRange { min: 1, max: 1 };

/// A relay as the hub knows it.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    /// None before it has ever reported.
    pub(crate) kept: Option<Kept>,
    /// Its session.
    pub(crate) session: Option<SessionHandle>,
    /// What it said in this session.
    pub(crate) report: Option<Box<RelayReport>>,
    /// Its runners, as last told in this session.
    pub(crate) beats: Vec<RunnerBeat>,
    /// The status told in this session.
    pub(crate) told: Option<ServerStatus>,
    /// Reports that changed what is kept.
    pub(crate) changes: Changes,
}

/// How much of its share of changes a relay has used.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// When all of the share is there again.
    whole: Option<Now>,
}

impl Changes {
    /// Takes one of so many, of which one more is there for each such time that passes; whether there
    /// is one.
    fn take(&mut self, now: Now, (most, every): (u32, Duration)) -> bool {
        let whole = self.whole.filter(|at| *at > now).unwrap_or(now);
        let used = now.until(whole);
        if used > every.saturating_mul(most.saturating_sub(1)) {
            return false;
        }
        self.whole = Some(whole.after(every));
        true
    }
}

/// What is kept of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The server it reported last.
    pub(crate) server: ServerNumber,
    /// The servers it may report: the first, and those approved since.
    pub(crate) bound: Vec<ServerNumber>,
    /// The system ID it reported last.
    pub(crate) system_id: String,
}

impl Kept {
    pub(crate) fn record(&self, relay: RelayId) -> Record {
        Record::RelayServer {
            relay,
            server: self.server,
            bound: self.bound.clone(),
            system_id: self.system_id.clone(),
        }
    }
}
