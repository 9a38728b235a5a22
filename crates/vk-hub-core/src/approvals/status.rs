//! Servers and projects as operators see them.

use vk_hub_proto::hex::Hex;

use super::{Decision, ProjectNumber, ServerNumber};
use crate::fleet::Fleet;

/// A GitLab server.
#[derive(Clone, Copy, Debug)]
pub struct GitLabServer<'a> {
    /// The hub's number of it.
    pub number: ServerNumber,
    /// Its URL.
    pub url: &'a str,
    /// SHA-256 of its certificate's public key; none for plain http.
    pub spki_sha256: Option<Hex<32>>,
    /// What operators decided of it.
    pub decision: Decision,
    /// All of its projects are taken, but for those that were rejected.
    pub all_projects: bool,
}

/// A project on a GitLab server.
#[derive(Clone, Copy, Debug)]
pub struct GitLabProject<'a> {
    /// The hub's number of it.
    pub number: ProjectNumber,
    /// Its server.
    pub server: ServerNumber,
    /// GitLab's number of it.
    pub gitlab_project: u64,
    /// Its path, as it was when it was first seen.
    pub path: &'a str,
    /// What operators decided of it.
    pub decision: Decision,
}

impl Fleet {
    /// All GitLab servers, by number.
    pub fn gitlab_servers(&self) -> impl Iterator<Item = GitLabServer<'_>> {
        let all = self.approvals.servers.iter();
        all.map(|(number, server)| GitLabServer {
            number: *number,
            url: &server.url,
            spki_sha256: server.spki_sha256,
            decision: server.decision,
            all_projects: server.all_projects,
        })
    }

    /// All projects that an operator has to do with, by number.
    pub fn gitlab_projects(&self) -> impl Iterator<Item = GitLabProject<'_>> {
        let all = self.approvals.projects.iter();
        all.map(|(number, project)| GitLabProject {
            number: *number,
            server: project.server,
            gitlab_project: project.gitlab_project,
            path: &project.path,
            decision: project.decision,
        })
    }
}
