//! GitLab servers and projects, and what operators decided of them (SESS-24 to SESS-26).
//!
//! A server is its URL and its certificate's key together: the same URL under another key is another
//! server, and a decision of its own.

mod decide;
mod judge;
mod status;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vk_hub_proto::hex::Hex;

pub(crate) use decide::{project_record, server_record, shown};
pub use status::{GitLabProject, GitLabServer};

/// A number that is not one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a GitLab server is s1, s2, …, a project p1, p2, …: `vk-hub gitlab` lists them")]
pub struct NumberError;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = NumberError;

            fn from_str(text: &str) -> Result<Self, NumberError> {
                let digits = text.strip_prefix($letter).ok_or(NumberError)?;
                let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits.parse().map_err(|_| NumberError)?;
                plain.then_some($name(number)).ok_or(NumberError)
            }
        }
    };
}

number!(
    /// The hub's number of a GitLab server, for operators: `s1`.
    ServerNumber,
    "s"
);
number!(
    /// The hub's number of a project on a GitLab server, for operators: `p1`.
    ProjectNumber,
    "p"
);

/// What operators decided of a server or project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Nothing yet.
    Pending,
    /// Its jobs are taken.
    Approved,
    /// Its jobs are refused.
    Rejected,
}

impl Decision {
    pub(crate) const fn of(approved: bool) -> Decision {
        if approved {
            Decision::Approved
        } else {
            Decision::Rejected
        }
    }
}

/// A server as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) spki_sha256: Option<Hex<32>>,
    pub(crate) decision: Decision,
    /// All of its projects are taken, but for those that were rejected.
    pub(crate) all_projects: bool,
}

/// A project as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Project {
    pub(crate) server: ServerNumber,
    pub(crate) gitlab_project: u64,
    pub(crate) path: String,
    pub(crate) decision: Decision,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Approvals {
    pub(crate) servers: BTreeMap<ServerNumber, Server>,
    pub(crate) projects: BTreeMap<ProjectNumber, Project>,
    by_gitlab: BTreeMap<(ServerNumber, u64), ProjectNumber>,
}

impl Approvals {
    pub(crate) fn put_project(&mut self, number: ProjectNumber, project: Project) {
        self.by_gitlab
            .insert((project.server, project.gitlab_project), number);
        self.projects.insert(number, project);
    }

    pub(crate) fn drop_project(&mut self, number: ProjectNumber) {
        if let Some(project) = self.projects.remove(&number) {
            self.by_gitlab
                .remove(&(project.server, project.gitlab_project));
        }
    }

    /// The server with this URL and key.
    pub(crate) fn server(&self, url: &str, key: Option<Hex<32>>) -> Option<ServerNumber> {
        let same = |server: &Server| server.url == url && server.spki_sha256 == key;
        let mut all = self.servers.iter();
        all.find(|(_, server)| same(server))
            .map(|(number, _)| *number)
    }

    /// GitLab's project of this number on a server.
    pub(crate) fn project(&self, server: ServerNumber, gitlab: u64) -> Option<ProjectNumber> {
        self.by_gitlab.get(&(server, gitlab)).copied()
    }

    pub(crate) fn next_server(&self) -> ServerNumber {
        let last = self.servers.last_key_value();
        ServerNumber(last.map_or(1, |(number, _)| number.0.saturating_add(1)))
    }

    pub(crate) fn next_project(&self) -> ProjectNumber {
        let last = self.projects.last_key_value();
        ProjectNumber(last.map_or(1, |(number, _)| number.0.saturating_add(1)))
    }

    /// The oldest project of which nothing was decided.
    pub(crate) fn oldest_pending(&self) -> Option<ProjectNumber> {
        let mut all = self.projects.iter();
        all.find(|(_, project)| project.decision == Decision::Pending)
            .map(|(number, _)| *number)
    }
}

/// A server's URL as it is compared: without the slash that may end it.
pub(crate) fn plain(url: &str) -> &str {
    url.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_shown_and_in_no_other_way() {
        assert_eq!("s12".parse(), Ok(ServerNumber(12)));
        assert_eq!("p7".parse(), Ok(ProjectNumber(7)));
        assert_eq!(ServerNumber(12).to_string(), "s12");
        for bad in ["12", "p12", "s", "s-1", "s+1", "s1x", "S1", "s99999999999"] {
            assert!(bad.parse::<ServerNumber>().is_err(), "{bad}");
        }
    }
}
