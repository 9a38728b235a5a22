//! What operators decide, and who hears of it at once.

use vk_hub_proto::RelayId;
use vk_hub_proto::display::sanitized;
use vk_hub_proto::relay_session::ServerStatus;

use super::{Decision, Project, ProjectNumber, Server, ServerNumber};
use crate::fleet::{Fleet, Out};
use crate::{Answer, Approve, Record, Refusal};

/// Servers a relay is bound to at most: keys of one GitLab come and go, and the oldest is let go.
const BOUND: usize = 8;

impl Fleet {
    /// `vk-hub gitlab approve|reject s1`. An approval binds the relays that report the server now to
    /// it, too (SESS-24, SESS-25).
    pub(crate) fn decide_server(
        &mut self,
        number: ServerNumber,
        decision: Decision,
        all_projects: Option<bool>,
        out: &mut Out,
    ) -> Result<Answer, Refusal> {
        let known = self.approvals.servers.get(&number);
        let before = known.ok_or_else(|| no_such(&number))?.clone();
        let after = Server {
            decision,
            all_projects: all_projects.unwrap_or(before.all_projects),
            ..before.clone()
        };
        if after != before {
            self.keep(server_record(number, &after), out);
        }
        let projects = if after.all_projects {
            ", all of its projects"
        } else {
            ""
        };
        let shown = shown(&after);
        self.audit(
            &format!("GitLab server {}", word(decision)),
            format!("{number} {shown}{projects}"),
            out,
        );
        if decision == Decision::Approved {
            self.bind_reporters(number, out);
        }
        self.tell_changes(out);
        Ok(Answer::Done)
    }

    /// Relays that report this server are bound to it.
    fn bind_reporters(&mut self, number: ServerNumber, out: &mut Out) {
        let reporters = self.relays.iter().filter_map(|(id, relay)| {
            let kept = relay.kept.as_ref()?;
            let unbound = kept.server == number && !kept.bound.contains(&number);
            unbound.then(|| (*id, kept.clone()))
        });
        for (relay, mut kept) in reporters.collect::<Vec<_>>() {
            if kept.bound.len() >= BOUND {
                kept.bound.remove(0);
            }
            kept.bound.push(number);
            self.keep(kept.record(relay), out);
            self.audit("relay bound anew", format!("{relay} to {number}"), out);
        }
    }

    /// `vk-hub gitlab approve|reject p1`.
    pub(crate) fn decide_project(
        &mut self,
        number: ProjectNumber,
        decision: Decision,
        out: &mut Out,
    ) -> Result<Answer, Refusal> {
        let known = self.approvals.projects.get(&number);
        let before = known.ok_or_else(|| no_such(&number))?.clone();
        let after = Project {
            decision,
            ..before.clone()
        };
        if after != before {
            self.keep(project_record(number, &after), out);
        }
        self.audit(
            &format!("GitLab project {}", word(decision)),
            format!("{number} {} on {}", after.path, after.server),
            out,
        );
        Ok(Answer::Done)
    }

    /// How a relay's server stands; none before the relay has reported one.
    pub(crate) fn server_status(&self, relay: RelayId) -> Option<ServerStatus> {
        let kept = self.relays.get(&relay)?.kept.as_ref()?;
        let server = self.approvals.servers.get(&kept.server)?;
        let takes_all = self.settings.approve == Approve::All;
        Some(match server.decision {
            Decision::Rejected => ServerStatus::Rejected,
            _ if takes_all => ServerStatus::Approved,
            _ if !kept.bound.contains(&kept.server) => ServerStatus::Rebound,
            Decision::Approved => ServerStatus::Approved,
            Decision::Pending => ServerStatus::Pending,
        })
    }

    /// A line of the audit log, durable with the step it is of.
    pub(crate) fn audit(&mut self, what: &str, detail: String, out: &mut Out) {
        let what = what.to_owned();
        self.keep(Record::Audited { what, detail }, out);
    }
}

pub(crate) fn server_record(number: ServerNumber, server: &Server) -> Record {
    Record::ServerKnown {
        server: number,
        url: server.url.clone(),
        spki_sha256: server.spki_sha256,
        decision: server.decision,
        all_projects: server.all_projects,
    }
}

pub(crate) fn project_record(number: ProjectNumber, project: &Project) -> Record {
    Record::ProjectKnown {
        project: number,
        server: project.server,
        gitlab_project: project.gitlab_project,
        path: project.path.clone(),
        decision: project.decision,
    }
}

/// A server for people: its URL, and what its key is told apart by.
pub(crate) fn shown(server: &Server) -> String {
    match &server.spki_sha256 {
        Some(key) => format!("{} (key {key})", sanitized(&server.url)),
        None => format!("{} (no TLS)", sanitized(&server.url)),
    }
}

const fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Pending => "pending",
        Decision::Approved => "approved",
        Decision::Rejected => "rejected",
    }
}

fn no_such(number: &dyn std::fmt::Display) -> Refusal {
    Refusal::not_found(format!("there is no {number}: `vk-hub gitlab` lists them"))
}
