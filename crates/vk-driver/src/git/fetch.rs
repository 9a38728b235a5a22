//! What a pipeline names, brought into its project's mirror.

use std::time::Duration;

use vk_hub_proto::job::{RefType, Sources};

use super::credential::Way;
use super::host::GitError;
use super::mirror::Mirror;

/// How often a pipeline's ref that is not there yet is asked for again, and after how long each
/// (STAGE-38).
const REF_WAITS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// What a fetch brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// The refspecs that a job's own fetch uses.
    pub(crate) refspecs: Vec<String>,
    /// The pipeline's ref was missing; the branch has the commit.
    pub(crate) by_branch: bool,
}

impl Mirror {
    /// Brings what the job's sources name, with the job's own token, and the repository's tags.
    pub(crate) async fn fetch(&self, sources: &Sources, way: &Way) -> Result<Fetched, GitError> {
        if !is_commit(&sources.sha) {
            return Err(GitError::Spec {
                what: "commit",
                value: sources.sha.clone(),
            });
        }
        let refspecs = refspecs(sources)?;
        let mut waits = REF_WAITS.iter();
        loop {
            let error = match self.fetch_refs(sources, &refspecs, way).await {
                Ok(()) => break,
                Err(error) => error,
            };
            if !is_missing_pipeline(error.said()) {
                return Err(error);
            }
            match waits.next() {
                Some(wait) => tokio::time::sleep(*wait).await,
                None => return self.fetch_branch(sources, way).await,
            }
        }
        self.check(sources).await?;
        Ok(Fetched {
            refspecs,
            by_branch: false,
        })
    }

    /// The pipeline's ref is gone: its branch, if that still has the commit (STAGE-38).
    async fn fetch_branch(&self, sources: &Sources, way: &Way) -> Result<Fetched, GitError> {
        let refspecs = vec![own_refspec(sources)?];
        self.fetch_refs(sources, &refspecs, way).await?;
        self.check(sources).await?;
        Ok(Fetched {
            refspecs,
            by_branch: true,
        })
    }

    async fn fetch_refs(
        &self,
        sources: &Sources,
        refspecs: &[String],
        way: &Way,
    ) -> Result<(), GitError> {
        // The mirror has the server's names; where a job wants them is the job's.
        let names: Vec<_> = refspecs
            .iter()
            .filter_map(|refspec| {
                let (source, _) = refspec.trim_start_matches('+').split_once(':')?;
                Some(format!("{source}:{source}"))
            })
            .collect();
        self.bring(&sources.repo_url, &names, true, way).await
    }

    /// Whether the commit is here, where this job may have it from.
    async fn check(&self, sources: &Sources) -> Result<(), GitError> {
        if self.has(&sources.sha).await? {
            return Ok(());
        }
        Err(GitError::NoCommit {
            sha: sources.sha.clone(),
            reference: sources.ref_name.clone(),
        })
    }
}

/// Whether a text is a commit's whole name.
pub(super) fn is_commit(sha: &str) -> bool {
    matches!(sha.len(), 40 | 64) && sha.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The job's refspecs, each checked: a source and a place for it, nothing that git would read as
/// an option.
fn refspecs(sources: &Sources) -> Result<Vec<String>, GitError> {
    if sources.refspecs.is_empty() {
        return own_refspec(sources).map(|refspec| vec![refspec]);
    }
    let mut checked = Vec::new();
    for refspec in &sources.refspecs {
        let plain = refspec.trim_start_matches('+');
        let both = plain.split_once(':');
        let fine =
            both.is_some_and(|(from, to)| from.starts_with("refs/") && to.starts_with("refs/"));
        if !fine || plain.chars().any(|c| c.is_control() || c == ' ') {
            return Err(GitError::Spec {
                what: "refspec",
                value: refspec.clone(),
            });
        }
        checked.push(refspec.clone());
    }
    Ok(checked)
}

fn own_refspec(sources: &Sources) -> Result<String, GitError> {
    let name = &sources.ref_name;
    if name.is_empty() || name.contains(':') || name.chars().any(|c| c.is_control() || c == ' ') {
        return Err(GitError::Spec {
            what: "ref",
            value: name.clone(),
        });
    }
    Ok(match sources.ref_type {
        // A merge request's is named in full.
        _ if name.starts_with("refs/") => format!("+{name}:{name}"),
        RefType::Branch => format!("+refs/heads/{name}:refs/remotes/origin/{name}"),
        RefType::Tag => format!("+refs/tags/{name}:refs/tags/{name}"),
    })
}

fn is_missing_pipeline(said: &str) -> bool {
    said.contains("couldn't find remote ref refs/pipelines/")
}
