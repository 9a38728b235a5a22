//! A relay's report: which server it serves, and whether that is the one it was bound to.

use vk_hub_proto::RelayId;
use vk_hub_proto::node_session::RefusedCode;
use vk_hub_proto::relay_session::{RelayReport, RelayServer};
use vk_step::Now;

use super::Kept;
use crate::approvals::{Decision, Server, ServerNumber, plain, server_record, shown};
use crate::fleet::{Fleet, Out};
use crate::{Effect, Record, SessionHandle};

impl Fleet {
    pub(crate) fn on_relay_report(
        &mut self,
        now: Now,
        (session, id): (SessionHandle, RelayId),
        report: Box<RelayReport>,
        out: &mut Out,
    ) {
        if !self.may_report(now, id, &report) {
            let (most, every) = self.settings.relay_changes;
            let reason = format!(
                "reports of another GitLab server or system ID come too often: {most} at once and \
                 one more every {} s are taken",
                every.as_secs()
            );
            self.relay_session_gone(session);
            return out.effect(Effect::CloseRelay {
                session,
                code: RefusedCode::Protocol,
                reason,
            });
        }
        let Some(server) = self.listed(&report.server, out) else {
            let most = self.settings.servers;
            let reason =
                format!("this hub keeps {most} GitLab servers and has no room for another");
            self.relay_session_gone(session);
            return out.effect(Effect::CloseRelay {
                session,
                code: RefusedCode::Internal,
                reason,
            });
        };
        self.keep_server(id, server, &report.system_id, out);
        if let Some(relay) = self.relays.get_mut(&id) {
            relay.report = Some(report);
        }
        self.tell_server(id, out);
    }

    /// Whether a report may be taken: each that changes what is kept costs a write and a line of the
    /// audit log. A session that ends does not give the relay another share.
    fn may_report(&mut self, now: Now, id: RelayId, report: &RelayReport) -> bool {
        let url = plain(&report.server.url);
        let server = self.approvals.server(url, report.server.spki_sha256);
        let limits = self.settings.relay_changes;
        let Some(relay) = self.relays.get_mut(&id) else {
            return true;
        };
        let same = relay
            .kept
            .as_ref()
            .is_some_and(|kept| Some(kept.server) == server && kept.system_id == report.system_id);
        same || relay.changes.take(now, limits)
    }

    /// The number of a reported server, a new one where the hub never heard of it.
    fn listed(&mut self, reported: &RelayServer, out: &mut Out) -> Option<ServerNumber> {
        let url = plain(&reported.url);
        if let Some(known) = self.approvals.server(url, reported.spki_sha256) {
            return Some(known);
        }
        let number = self.approvals.next_server();
        if self.approvals.servers.len() >= self.settings.servers {
            let server = self.droppable()?;
            self.keep(Record::ServerDropped { server }, out);
        }
        let server = Server {
            url: url.to_owned(),
            spki_sha256: reported.spki_sha256,
            decision: Decision::Pending,
            all_projects: false,
        };
        self.keep(server_record(number, &server), out);
        let detail = format!("{number} {}", shown(&server));
        self.audit("GitLab server first reported", detail, out);
        Some(number)
    }

    /// The oldest server of which nothing was decided and that no relay has to do with.
    fn droppable(&self) -> Option<ServerNumber> {
        let used = |number: &ServerNumber| {
            let mut kept = self.relays.values().filter_map(|relay| relay.kept.as_ref());
            kept.any(|kept| kept.server == *number || kept.bound.contains(number))
        };
        let mut pending = self.approvals.servers.iter();
        pending
            .find(|(number, one)| one.decision == Decision::Pending && !used(number))
            .map(|(number, _)| *number)
    }

    /// SESS-24: the first server a relay reports is the one it is bound to. SESS-25, SESS-27: another
    /// one, and another system ID, are lines of the audit log.
    fn keep_server(&mut self, id: RelayId, server: ServerNumber, system_id: &str, out: &mut Out) {
        let before = self.relays.get(&id).and_then(|relay| relay.kept.clone());
        let after = Kept {
            server,
            bound: before
                .as_ref()
                .map_or(vec![server], |kept| kept.bound.clone()),
            system_id: system_id.to_owned(),
        };
        if before.as_ref() == Some(&after) {
            return;
        }
        self.keep(after.record(id), out);
        let Some(before) = before else {
            return self.audit("relay bound", format!("{id} to {server}"), out);
        };
        if before.server != server {
            let known = self.approvals.servers.get(&server).map(shown);
            let known = known.unwrap_or_default();
            let detail = if after.bound.contains(&server) {
                format!(
                    "{id} reports {server} {known} again, after {}",
                    before.server
                )
            } else {
                format!(
                    "{id} reports {server} {known}, it was bound to {}; if that is right: \
                     vk-hub gitlab approve {server}",
                    before.server
                )
            };
            self.audit("relay's GitLab server changed", detail, out);
        }
        if before.system_id != system_id {
            let detail = format!(
                "{id} reports system ID {system_id}, before it was {}: its host may have been \
                 cloned",
                before.system_id
            );
            self.audit("relay's system ID changed", detail, out);
        }
    }
}
