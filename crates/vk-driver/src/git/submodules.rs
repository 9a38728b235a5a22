//! Submodules, brought like their superproject: a mirror for each repository, no `git submodule` on
//! the host, and nothing that a repository could make run (STAGE-09).

mod modules;
mod one;
mod url;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::JoinSet;
use vk_hub_proto::job::ObjectFormat;

use super::checkout::Tree;
use super::credential::Credential;
use super::host::GitError;
use crate::settings::Submodules;
use modules::Planned;
pub(crate) use url::Rewrites;

/// Most submodules of a job.
const COUNT_MAX: usize = 1000;
/// Submodules inside submodules go so deep at most.
const LEVELS_MAX: usize = 16;

/// What all submodules of a job share.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Where mirrors are kept.
    pub(crate) mirrors: PathBuf,
    /// The job's token, for its own server alone.
    pub(crate) credential: Arc<Credential>,
    /// What the job wants.
    pub(crate) wanted: Submodules,
    /// Their hash function, which is their superproject's.
    pub(crate) format: ObjectFormat,
    /// `GIT_SUBMODULE_FORCE_HTTPS`.
    pub(crate) rewrites: Rewrites,
}

/// What was brought.
#[derive(Debug, Default)]
pub(crate) struct Updated {
    /// What is said of each, without line breaks.
    pub(crate) lines: Vec<String>,
    /// Their trees, each with its remote's URL.
    pub(crate) trees: Vec<(Tree, String)>,
}

/// A repository whose submodules are looked for.
#[derive(Debug)]
struct Parent {
    tree: Tree,
    url: String,
    /// Where it lies in the job's tree, with a slash at its end; empty for the job's own.
    prefix: String,
    level: usize,
}

/// Brings the submodules of a tree into it, and those of submodules where that is wanted.
pub(crate) async fn update(site: &Site, top: &Tree, url: &str) -> Result<Updated, GitError> {
    let mut updated = Updated::default();
    let mut parents = vec![Parent {
        tree: top.clone(),
        url: url.to_owned(),
        prefix: String::new(),
        level: 0,
    }];
    while let Some(parent) = parents.pop() {
        let planned = modules::plan(site, &parent).await?;
        if updated.trees.len() + planned.len() > COUNT_MAX || parent.level >= LEVELS_MAX {
            return Err(GitError::Submodule {
                path: parent.prefix,
                why: format!("a job may have {COUNT_MAX} of them, {LEVELS_MAX} inside each other"),
            });
        }
        for done in bring_all(site, planned).await? {
            register(&parent.tree, &done).await?;
            updated.lines.extend(done.lines());
            if site.wanted.recursive {
                parents.push(Parent {
                    tree: done.tree.clone(),
                    url: done.url.clone(),
                    prefix: format!("{}/", done.shown),
                    level: parent.level + 1,
                });
            }
            updated.trees.push((done.tree, done.url));
        }
    }
    Ok(updated)
}

/// Brings them, as many at once as the job wants; in their own order.
async fn bring_all(site: &Site, planned: Vec<Planned>) -> Result<Vec<Planned>, GitError> {
    let mut done: Vec<Option<Planned>> = planned.iter().map(|_| None).collect();
    let mut waiting = planned.into_iter().enumerate();
    let mut running = JoinSet::new();
    let site = Arc::new(site.clone());
    loop {
        while running.len() < site.wanted.jobs {
            let Some((place, one)) = waiting.next() else {
                break;
            };
            let site = Arc::clone(&site);
            running.spawn(async move { one::bring(&site, one).await.map(|one| (place, one)) });
        }
        let Some(ended) = running.join_next().await else {
            return Ok(done.into_iter().flatten().collect());
        };
        // One that fails ends the others with it.
        let ended = ended.map_err(|error| GitError::Start(std::io::Error::other(error)))?;
        let (place, one) = ended?;
        if let Some(slot) = done.get_mut(place) {
            *slot = Some(one);
        }
    }
}

/// Writes down what `git submodule init` would, so that a job's own git knows its submodules.
async fn register(parent: &Tree, done: &Planned) -> Result<(), GitError> {
    let key = |what: &str| format!("submodule.{}.{what}", done.name);
    let what = "name a submodule";
    parent
        .run(what, &["config", &key("active"), "true"])
        .await?;
    parent
        .run(what, &["config", &key("url"), &done.url])
        .await?;
    Ok(())
}

/// The way from one directory to another.
fn way(from: &Path, to: &Path) -> PathBuf {
    let (mut a, mut b) = (from.components().peekable(), to.components().peekable());
    while a.peek().is_some() && a.peek() == b.peek() {
        a.next();
        b.next();
    }
    let up = a.map(|_| std::path::Component::ParentDir);
    up.chain(b).collect()
}
