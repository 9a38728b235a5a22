//! Relays' sessions: opened, superseded, heard, closed, and told how their server stands.

use vk_hub_proto::RelayId;
use vk_hub_proto::node_session::RefusedCode;
use vk_hub_proto::relay_session::ServerStatus;
use vk_step::Now;

use crate::approvals::shown;
use crate::fleet::{Fleet, Out};
use crate::{Effect, FromRelay, SessionHandle};

impl Fleet {
    /// SESS-27: the newest session wins.
    pub(crate) fn on_relay_opened(&mut self, session: SessionHandle, id: RelayId, out: &mut Out) {
        let relay = self.relays.entry(id).or_default();
        let older = relay.session.replace(session);
        relay.report = None;
        relay.beats.clear();
        relay.told = None;
        if let Some(older) = older {
            self.relay_sessions.remove(&older);
            out.effect(Effect::CloseRelay {
                session: older,
                code: RefusedCode::Superseded,
                reason: "a newer session of this relay took over".to_owned(),
            });
        }
        self.relay_sessions.insert(session, id);
    }

    /// A session ended; nothing happens where it is no relay's.
    pub(crate) fn relay_session_gone(&mut self, session: SessionHandle) {
        let id = self.relay_sessions.remove(&session);
        let Some(id) = id.filter(|id| self.relays.contains_key(id)) else {
            return;
        };
        if let Some(relay) = self.relays.get_mut(&id) {
            relay.session = None;
            relay.report = None;
            relay.beats.clear();
            relay.told = None;
            if relay.kept.is_none() {
                self.relays.remove(&id);
            }
        }
    }

    /// A message of a live session; those of closed ones are ignored.
    pub(crate) fn on_relay_message(
        &mut self,
        now: Now,
        session: SessionHandle,
        message: FromRelay,
        out: &mut Out,
    ) {
        let Some(id) = self.relay_sessions.get(&session).copied() else {
            return;
        };
        match message {
            FromRelay::Report(report) => self.on_relay_report(now, (session, id), report, out),
            FromRelay::Heartbeat(beats) => {
                if let Some(relay) = self.relays.get_mut(&id) {
                    relay.beats = beats;
                }
            }
        }
    }

    /// An operator removed the relay: its session closes for good, and what is kept of it goes.
    pub(crate) fn remove_relay(&mut self, id: RelayId, out: &mut Out) {
        let Some(relay) = self.relays.get(&id) else {
            return;
        };
        let (session, kept) = (relay.session, relay.kept.is_some());
        if let Some(session) = session {
            self.relay_sessions.remove(&session);
            out.effect(Effect::CloseRelay {
                session,
                code: RefusedCode::Revoked,
                reason: "an operator removed this relay".to_owned(),
            });
        }
        if kept {
            self.keep(crate::Record::RelayRemoved { relay: id }, out);
        } else {
            self.relays.remove(&id);
        }
    }

    /// Tells every session whose server stands in another way than it was told.
    pub(crate) fn tell_changes(&mut self, out: &mut Out) {
        let live: Vec<RelayId> = self.relay_sessions.values().copied().collect();
        for id in live {
            let status = self.server_status(id);
            let told = self.relays.get(&id).and_then(|relay| relay.told);
            if told.is_some() && told != status {
                self.tell_server(id, out);
            }
        }
    }

    /// Tells a relay's session how its server stands (SESS-08).
    pub(crate) fn tell_server(&mut self, id: RelayId, out: &mut Out) {
        let Some(status) = self.server_status(id) else {
            return;
        };
        let message = self.status_message(id, status);
        let Some(relay) = self.relays.get_mut(&id) else {
            return;
        };
        let Some(session) = relay.session else { return };
        relay.told = Some(status);
        out.effect(Effect::Server {
            session,
            status,
            message,
        });
    }

    /// What the status means, and what an operator does about it.
    fn status_message(&self, id: RelayId, status: ServerStatus) -> Option<String> {
        let kept = self.relays.get(&id)?.kept.as_ref()?;
        let number = kept.server;
        let server = shown(self.approvals.servers.get(&number)?);
        let approve = format!("vk-hub gitlab approve {number}");
        match status {
            ServerStatus::Approved => None,
            ServerStatus::Pending => Some(format!(
                "GitLab server {server} is waiting for approval on the hub: {approve}"
            )),
            ServerStatus::Rejected => Some(format!(
                "an operator of the hub rejected GitLab server {server}; {approve} undoes that"
            )),
            ServerStatus::Rebound => Some(format!(
                "GitLab server {server} is another than this relay was bound to, or its key is \
                 new; if that is right: {approve}"
            )),
        }
    }
}
