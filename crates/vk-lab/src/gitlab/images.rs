//! The container registry and the dependency proxy: which images there are, and who may pull them.
//! Both take the same password: the token of a running job.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::state::{Gitlab, Project};
use super::token;
use super::variables::host_of;

/// Most images.
const MAX_IMAGES: usize = 1_000;
/// Most pull tokens at once; the oldest goes first.
const MAX_PULLS: usize = 10_000;
/// How long a pull token is good for, whatever becomes of its job.
const PULL_MS: u64 = 300_000;

/// A token that pulls one image.
#[derive(Debug, Clone)]
pub(super) struct Pull {
    token: token::Secret,
    name: String,
    expires_ms: u64,
}

impl Gitlab {
    /// Serves the OCI layout in a directory as `name` (without registry, without tag). Whether there
    /// was room.
    pub fn add_image(&mut self, name: &str, layout: PathBuf) -> bool {
        if self.images.len() >= MAX_IMAGES && !self.images.contains_key(name) {
            return false;
        }
        self.images.insert(name.to_owned(), layout);
        true
    }

    /// Where an image lies.
    pub fn image(&self, name: &str) -> Option<&Path> {
        self.images.get(name).map(PathBuf::as_path)
    }

    /// A pull token for whoever shows a running job's token: for images of the job's project, and
    /// of its group's dependency proxy. An image that is not its own is answered a token for
    /// nothing, as GitLab does.
    pub fn pull_token(&mut self, job_token: &str, name: &str, now: u64) -> Option<token::Secret> {
        let job = self.running_job_of(job_token, now)?;
        let project = self.project_of(job).filter(|project| !project.deleted)?;
        let own = name == project.path || name.starts_with(&format!("{}/", project.path));
        let proxied = name.starts_with(&format!("{}/dependency_proxy/containers/", group(project)));
        let name = if own || proxied { name } else { "" }.to_owned();
        let token = token::fresh("pull-");
        if self.pulls.len() >= MAX_PULLS {
            self.pulls.pop_front();
        }
        self.pulls.push_back(Pull {
            token: token.clone(),
            name,
            expires_ms: now + PULL_MS,
        });
        Some(token)
    }

    /// Whether a pull token is good for an image; nothing where it is none at all.
    pub fn may_pull(&self, shown: &str, name: &str, now: u64) -> Option<bool> {
        let known = self.pulls.iter().filter(|pull| now < pull.expires_ms);
        let pull = known.into_iter().find(|pull| pull.token.matches(shown))?;
        Some(pull.name == name)
    }

    /// What a job is told to log in with, once there is an image.
    pub(super) fn credentials(&self, token: &str) -> Vec<Value> {
        if self.images.is_empty() {
            return Vec::new();
        }
        vec![json!({"type": "registry", "url": host_of(&self.base_url),
                    "username": "gitlab-ci-token", "password": token})]
    }

    /// The variables of registry and proxy, once there is an image.
    pub(super) fn registry_variables(&self, project: &Project) -> Vec<(&'static str, String)> {
        if self.images.is_empty() {
            return Vec::new();
        }
        let host = host_of(&self.base_url);
        let proxy = format!("{host}/{}/dependency_proxy/containers", group(project));
        vec![
            ("CI_REGISTRY", host.to_owned()),
            ("CI_REGISTRY_IMAGE", format!("{host}/{}", project.path)),
            ("CI_DEPENDENCY_PROXY_SERVER", host.to_owned()),
            ("CI_DEPENDENCY_PROXY_GROUP_IMAGE_PREFIX", proxy),
        ]
    }
}

/// The group of a project.
fn group(project: &Project) -> &str {
    project.path.split('/').next().unwrap_or_default()
}
