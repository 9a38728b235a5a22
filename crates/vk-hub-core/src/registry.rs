//! Which registry token a job's start is to carry: decided here, made by the edge.

use std::time::Duration;

use vk_hub_proto::job::JobSpec;

use crate::node::Node;

/// How long past a job's timeout its token lives: the job may have waited for memory before, and
/// its caches are saved after its script (REG-16).
const SLACK: Duration = Duration::from_secs(600);
/// The longest timeout that a token goes along with: GitLab's longest, a month.
const LONGEST: Duration = Duration::from_secs(31 * 86_400);

/// A registry that tokens are made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    /// As nodes report theirs: compared letter by letter (REG-05, REG-22).
    pub url: String,
    /// What the repositories of caches lie below.
    pub cache_prefix: String,
    /// Repositories that every job may read.
    pub read: Vec<String>,
}

/// What a job's token is to grant (REG-16). Holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenScope {
    /// The URL of the registry it is for.
    pub registry: String,
    /// To read and to write: the repository of the project's caches, of the job's protection alone
    /// (REG-21). Whether it is a repository's name is for the edge to see.
    pub repository: String,
    /// To read.
    pub read: Vec<String>,
    /// From now on.
    pub life: Duration,
}

/// What a job on this node gets; none where the node's registry is none of the hub's (REG-05).
pub(crate) fn scope(
    registries: &[Registry],
    node: &Node,
    spec: &JobSpec,
    timeout_secs: u64,
) -> Option<Box<TokenScope>> {
    let url = node.inventory.as_ref()?.registry_url.as_ref()?;
    let registry = registries.iter().find(|registry| registry.url == *url)?;
    let JobSpec::GitlabCi(job) = spec;
    let protection = match job.is_protected() {
        true => "protected",
        false => "unprotected",
    };
    let (prefix, project) = (&registry.cache_prefix, job.project_repository());
    Some(Box::new(TokenScope {
        registry: registry.url.clone(),
        repository: format!("{prefix}/{project}/{protection}"),
        read: registry.read.clone(),
        life: Duration::from_secs(timeout_secs).min(LONGEST) + SLACK,
    }))
}
