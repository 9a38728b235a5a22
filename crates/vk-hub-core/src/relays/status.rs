//! Relays as operators see them.

use vk_hub_proto::RelayId;
use vk_hub_proto::relay_session::{RelayReport, RunnerBeat, ServerStatus};

use super::Relay;
use crate::approvals::ServerNumber;
use crate::fleet::Fleet;

/// A relay that has a session or has had one.
#[derive(Clone, Copy, Debug)]
pub struct RelayStatus<'a> {
    /// Its ID.
    pub relay: RelayId,
    /// Whether it has a session.
    pub connected: bool,
    /// The server it reported last.
    pub server: Option<ServerNumber>,
    /// How that stands for this relay.
    pub status: Option<ServerStatus>,
    /// What it said in its session.
    pub report: Option<&'a RelayReport>,
    /// Its runners, as last told in its session.
    pub runners: &'a [RunnerBeat],
}

impl Fleet {
    /// All relays of which something is known, by ID.
    pub fn relays(&self) -> impl Iterator<Item = RelayStatus<'_>> {
        self.relays
            .iter()
            .map(|(id, relay)| self.relay_row(*id, relay))
    }

    fn relay_row<'a>(&self, id: RelayId, relay: &'a Relay) -> RelayStatus<'a> {
        RelayStatus {
            relay: id,
            connected: relay.session.is_some(),
            server: relay.kept.as_ref().map(|kept| kept.server),
            status: self.server_status(id),
            report: relay.report.as_deref(),
            runners: &relay.beats,
        }
    }
}
