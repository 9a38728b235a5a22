//! One submodule: its mirror, its repository below its superproject's, its files.

use std::path::Path;

use super::modules::Planned;
use super::{Site, way};
use crate::git::checkout::FromMirror;
use crate::git::credential::Way;
use crate::git::foreign;
use crate::git::host::GitError;
use crate::git::mirror::{Mirror, name_of_url};
use crate::git::unfollowed;
use crate::settings::FetchFlags;

/// What the mirror calls the server's own branch.
const HEAD: &str = "refs/vk/HEAD";

/// Brings it. Its commit is then the one that is checked out.
pub(super) async fn bring(site: &Site, mut one: Planned) -> Result<Planned, GitError> {
    let shown = one.shown.clone();
    let done = fetch_and_check_out(site, &mut one).await;
    done.map_err(|error| match error {
        GitError::Failed { .. } | GitError::Timeout { .. } => GitError::Submodule {
            path: shown,
            why: format!("{error} (from {})", one.url),
        },
        other => other,
    })?;
    Ok(one)
}

async fn fetch_and_check_out(site: &Site, one: &mut Planned) -> Result<(), GitError> {
    let road = if site.credential.is_for(&one.url) {
        site.credential.way().clone()
    } else {
        foreign::settings(&one.url, &site.credential, &one.tree.git)
            .await
            .map_err(|why| GitError::Submodule {
                path: one.shown.clone(),
                why,
            })?
    };
    let name = name_of_url(&one.url, site.format);
    let git = one.tree.git.clone();
    let mirror = Mirror::open(&site.mirrors, git, &name, site.format).await?;
    fetch(site, one, &mirror, &road).await?;
    let tree = &one.tree;
    // Where all its parents' repositories lie, the top one's too.
    let top = |dir: &&Path| dir.file_name().is_some_and(|name| name == ".git");
    let top = tree.git_dir.ancestors().filter(top).last();
    let made = unfollowed::make_dirs(top.unwrap_or(&tree.git_dir), &tree.git_dir);
    made.map_err(GitError::file("make", &tree.git_dir))?;
    tree.make(site.format, &one.url).await?;
    let mut refspecs = vec![one.sha.clone()];
    if one.depth == 0 {
        refspecs.push("+refs/heads/*:refs/remotes/origin/*".to_owned());
    }
    let from = FromMirror {
        refspecs: &refspecs,
        depth: one.depth,
        flags: &FetchFlags::default(),
        url: &one.url,
    };
    tree.fetch(&mirror, from).await?;
    mirror.done().await;
    tree.check_out(&one.sha).await?;
    link(&tree.work, &tree.git_dir)?;
    let back = way(&tree.git_dir, &tree.work);
    let back = back.to_string_lossy();
    tree.run("set up a submodule", &["config", "core.worktree", &back])
        .await?;
    Ok(())
}

/// The work tree names its repository, wherever both lie together.
fn link(work: &Path, git_dir: &Path) -> Result<(), GitError> {
    let path = work.join(".git");
    let to = way(work, git_dir);
    let text = format!("gitdir: {}\n", to.display());
    let written = unfollowed::put(&path, text.as_bytes());
    written.map_err(GitError::file("write", &path))
}

/// Fetches what is needed into the mirror. The server's own branch is always asked for: a fetch of
/// nothing but a commit that is here would not ask the server, and the job's token be no key.
async fn fetch(site: &Site, one: &mut Planned, mirror: &Mirror, way: &Way) -> Result<(), GitError> {
    let head = format!("HEAD:{HEAD}");
    let heads = "refs/heads/*:refs/heads/*".to_owned();
    let all = one.depth == 0 || site.wanted.remote;
    let bring = async |what: &[String]| mirror.bring(&one.url, what, all, way).await;
    let first = if all {
        vec![head.clone(), heads.clone()]
    } else {
        vec![head.clone()]
    };
    match bring(&first).await {
        Err(error) if error.said().contains("couldn't find remote ref HEAD") => {
            bring(std::slice::from_ref(&heads)).await?;
        }
        done => done?,
    }
    if site.wanted.remote {
        let branch = one.branch.as_ref().map(|name| format!("refs/heads/{name}"));
        one.sha = mirror.commit_of(branch.as_deref().unwrap_or(HEAD)).await?;
        return Ok(());
    }
    if mirror.has(&one.sha).await? {
        return Ok(());
    }
    // It is on another branch, or on none. Not every server gives a commit by its name.
    let kept = format!("{0}:refs/vk/kept/{0}", one.sha);
    let by_name = bring(&[head, kept]).await;
    if by_name.is_err() {
        bring(std::slice::from_ref(&heads)).await?;
    }
    if mirror.has(&one.sha).await? {
        return Ok(());
    }
    Err(GitError::Submodule {
        path: one.shown.clone(),
        why: format!("its commit {} is not in {}", one.sha, one.url),
    })
}
