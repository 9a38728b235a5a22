//! What operators are shown of GitLab's servers and projects, and of relays, and what they decide.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vk_hub_core::{
    Approve, Decision, Fleet, NumberError, OperatorRequest, ProjectNumber, ServerNumber,
};
use vk_hub_proto::RelayId;
use vk_hub_proto::hex::Hex;
use vk_hub_proto::relay_session::{RelayRunnerState, ServerStatus};

use crate::members::Members;
use crate::store::MemberKind;

/// A server or project, as operators name it: `s1`, `p1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A GitLab server.
    Server(ServerNumber),
    /// A project.
    Project(ProjectNumber),
}

impl FromStr for Target {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Target, NumberError> {
        let server = text.parse().map(Target::Server);
        server.or_else(|_| text.parse().map(Target::Project))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Server(number) => number.fmt(f),
            Target::Project(number) => number.fmt(f),
        }
    }
}

impl Target {
    /// What the fleet is asked to decide of it.
    pub(super) const fn decide(
        self,
        approved: bool,
        all_projects: Option<bool>,
    ) -> OperatorRequest {
        match self {
            Target::Server(server) => OperatorRequest::DecideServer {
                server,
                approved,
                all_projects,
            },
            Target::Project(project) => OperatorRequest::DecideProject { project, approved },
        }
    }
}

/// All servers and projects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GitLab {
    /// The servers.
    pub servers: Vec<ServerRow>,
    /// The projects an operator has to do with.
    pub projects: Vec<ProjectRow>,
    /// What waits for an operator.
    pub pending: Vec<PendingRow>,
}

/// One GitLab server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerRow {
    /// The hub's number of it.
    pub server: String,
    /// Its URL.
    pub url: String,
    /// SHA-256 of its certificate's public key; none for plain http.
    pub spki_sha256: Option<Hex<32>>,
    /// What operators decided.
    pub decision: Decision,
    /// All of its projects are taken, but for those that were rejected.
    pub all_projects: bool,
}

/// One project.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProjectRow {
    /// The hub's number of it.
    pub project: String,
    /// Its server's.
    pub server: String,
    /// GitLab's number of it.
    pub gitlab_project: u64,
    /// Its path, as it was when it was first seen.
    pub path: String,
    /// What operators decided.
    pub decision: Decision,
}

/// What waits for an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRow {
    /// What to approve or reject.
    pub id: String,
    /// What that is, for people.
    pub what: String,
}

/// One relay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RelayRow {
    /// Its ID.
    pub relay: RelayId,
    /// Its host, as it says.
    pub hostname: String,
    /// Whether it has a session.
    pub connected: bool,
    /// The hub's number of the server it serves.
    pub server: Option<String>,
    /// How that stands.
    pub status: Option<ServerStatus>,
    /// Its program's version.
    pub version: Option<String>,
    /// Its system ID towards GitLab.
    pub system_id: Option<String>,
    /// Jobs it takes at most.
    pub concurrent: Option<u32>,
    /// Its runners.
    pub runners: Vec<RunnerRow>,
}

/// One runner of a relay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunnerRow {
    /// Its name.
    pub name: String,
    /// What it does.
    pub state: RelayRunnerState,
    /// Job requests outstanding.
    pub requests: u32,
    /// Jobs held.
    pub jobs: u32,
}

impl GitLab {
    /// As the fleet stands.
    #[must_use]
    pub fn of(fleet: &Fleet, approve: Approve) -> GitLab {
        let servers = fleet.gitlab_servers().map(|one| ServerRow {
            server: one.number.to_string(),
            url: one.url.to_owned(),
            spki_sha256: one.spki_sha256,
            decision: one.decision,
            all_projects: one.all_projects,
        });
        let projects = fleet.gitlab_projects().map(|one| ProjectRow {
            project: one.number.to_string(),
            server: one.server.to_string(),
            gitlab_project: one.gitlab_project,
            path: one.path.to_owned(),
            decision: one.decision,
        });
        GitLab {
            servers: servers.collect(),
            projects: projects.collect(),
            pending: pending(fleet, approve),
        }
    }
}

/// What waits for an operator: servers, relays that report another one, projects.
pub(super) fn pending(fleet: &Fleet, approve: Approve) -> Vec<PendingRow> {
    if approve == Approve::All {
        return Vec::new();
    }
    let waits = |decision| decision == Decision::Pending;
    let mut rows = Vec::new();
    let servers: BTreeMap<ServerNumber, _> = fleet
        .gitlab_servers()
        .map(|one| (one.number, one))
        .collect();
    for one in servers.values().filter(|one| waits(one.decision)) {
        rows.push(PendingRow {
            id: one.number.to_string(),
            what: format!("GitLab server {}{}", one.url, key(one.spki_sha256)),
        });
    }
    let rebound = fleet
        .relays()
        .filter(|relay| relay.status == Some(ServerStatus::Rebound));
    for relay in rebound {
        let server = relay.server.and_then(|number| servers.get(&number));
        rows.extend(server.map(|one| PendingRow {
            id: one.number.to_string(),
            what: format!(
                "relay {} reports {}{}: another server or key than it was bound to",
                relay.relay,
                one.url,
                key(one.spki_sha256)
            ),
        }));
    }
    for one in fleet.gitlab_projects().filter(|one| waits(one.decision)) {
        let server = servers.get(&one.server);
        if server.is_none_or(|server| !server.all_projects) {
            rows.push(PendingRow {
                id: one.number.to_string(),
                what: format!(
                    "project {} (ID {}) on {}",
                    one.path, one.gitlab_project, one.server
                ),
            });
        }
    }
    rows
}

fn key(key: Option<Hex<32>>) -> String {
    key.map_or_else(String::new, |key| format!(" (key {key})"))
}

/// All enrolled relays, with what the fleet knows of them.
pub(super) fn relays(fleet: &Fleet, members: &Members) -> Vec<RelayRow> {
    let all: BTreeMap<RelayId, _> = fleet.relays().map(|one| (one.relay, one)).collect();
    let row = |member: crate::store::Member| {
        let relay = member.relay();
        let known = all.get(&relay);
        let report = known.and_then(|known| known.report);
        let runners = known.map_or(&[][..], |known| known.runners);
        let runner = |beat: &vk_hub_proto::relay_session::RunnerBeat| RunnerRow {
            name: beat.name.clone(),
            state: beat.state,
            requests: beat.requests,
            jobs: beat.jobs,
        };
        RelayRow {
            relay,
            hostname: report.map_or(member.hostname, |report| report.host.clone()),
            connected: known.is_some_and(|known| known.connected),
            server: known.and_then(|known| known.server.map(|server| server.to_string())),
            status: known.and_then(|known| known.status),
            version: report.map(|report| report.version.clone()),
            system_id: report.map(|report| report.system_id.clone()),
            concurrent: report.map(|report| report.concurrent),
            runners: runners.iter().map(runner).collect(),
        }
    };
    members
        .all(MemberKind::GitLab)
        .into_iter()
        .map(row)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_servers_or_projects() {
        assert_eq!("s3".parse(), Ok(Target::Server(ServerNumber(3))));
        assert_eq!("p3".parse(), Ok(Target::Project(ProjectNumber(3))));
        let error = "3".parse::<Target>().unwrap_err().to_string();
        assert!(error.contains("vk-hub gitlab"), "{error}");
    }
}
