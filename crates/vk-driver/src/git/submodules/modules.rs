//! Which submodules a commit has, by its index and its `.gitmodules`, each checked before anything
//! is done with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{Parent, Site, url};
use crate::git::checkout::Tree;
use crate::git::host::GitError;

/// A submodule to be brought.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) name: String,
    /// Where it lies in the job's tree.
    pub(super) shown: String,
    pub(super) url: String,
    /// The commit that its superproject names.
    pub(super) sha: String,
    /// History to fetch; 0 is all of it.
    pub(super) depth: u32,
    /// The branch that `--remote` follows; the server's own where there is none.
    pub(super) branch: Option<String>,
    pub(super) tree: Tree,
}

impl Planned {
    /// What git would say of it.
    pub(super) fn lines(&self) -> [String; 2] {
        let Planned {
            name,
            url,
            shown,
            sha,
            ..
        } = self;
        [
            format!("Submodule '{name}' ({url}) registered for path '{shown}'"),
            format!("Submodule path '{shown}': checked out '{sha}'"),
        ]
    }
}

/// What `.gitmodules` says of one.
#[derive(Debug, Default)]
struct Said {
    path: Option<String>,
    url: Option<String>,
    branch: Option<String>,
    update: Option<String>,
    shallow: bool,
}

/// The submodules of a repository that the job wants.
pub(super) async fn plan(site: &Site, parent: &Parent) -> Result<Vec<Planned>, GitError> {
    let links = links(site, parent).await?;
    if links.is_empty() {
        return Ok(Vec::new());
    }
    let mut said = said(&parent.tree).await?;
    let mut planned: Vec<Planned> = Vec::new();
    for (path, sha) in links {
        let shown = format!("{}{path}", parent.prefix);
        let bad = |why: String| GitError::Submodule {
            path: shown.clone(),
            why,
        };
        let found = said
            .iter()
            .find(|(_, one)| one.path.as_deref() == Some(path.as_str()))
            .map(|(name, _)| name.clone());
        let of = found.and_then(|name| said.remove_entry(&name));
        let Some((
            name,
            Said {
                url: Some(url),
                branch,
                update,
                shallow,
                ..
            },
        )) = of
        else {
            return Err(bad("no url is found for it in .gitmodules".to_owned()));
        };
        match update.as_deref() {
            Some("none") => continue,
            Some(command) if command.starts_with('!') => {
                return Err(bad(format!(".gitmodules wants {command:?} run for it")));
            }
            _ => {}
        }
        check_name(&name)
            .and_then(|()| check_path(&path))
            .map_err(bad)?;
        let url = url::resolve(&parent.url, &url, &site.rewrites).map_err(bad)?;
        let recommended = site.wanted.recommended && shallow && site.wanted.depth == 0;
        planned.push(Planned {
            tree: Tree {
                git: parent.tree.git.clone(),
                work: place(&parent.tree.work, &path).map_err(bad)?,
                git_dir: parent.tree.git_dir.join("modules").join(&name),
            },
            name,
            url,
            sha,
            depth: if recommended { 1 } else { site.wanted.depth },
            branch,
            shown: shown.clone(),
        });
    }
    apart(&planned)?;
    Ok(planned)
}

/// Paths and commits of the index's links that the job's pathspecs want.
async fn links(site: &Site, parent: &Parent) -> Result<Vec<(String, String)>, GitError> {
    let mut args = parent.tree.args(&["ls-files", "-s", "-z"]);
    if parent.level == 0 && !site.wanted.paths.is_empty() {
        args.push("--".into());
        args.extend(site.wanted.paths.iter().map(Into::into));
    }
    let git = &parent.tree.git;
    let is_link = |record: &[u8]| record.starts_with(b"160000 ");
    let records = git.records("list submodules", &args, is_link).await?;
    let mut links = Vec::new();
    for record in records {
        let text = String::from_utf8(record).map_err(|error| GitError::Submodule {
            path: String::from_utf8_lossy(error.as_bytes()).into_owned(),
            why: "its path is not UTF-8".to_owned(),
        })?;
        // `160000 <commit> <stage>\t<path>`
        if let Some((head, path)) = text.split_once('\t') {
            let sha = head.split(' ').nth(1).unwrap_or_default();
            links.push((path.to_owned(), sha.to_owned()));
        }
    }
    Ok(links)
}

/// What the index's `.gitmodules` says, by name.
async fn said(tree: &Tree) -> Result<BTreeMap<String, Said>, GitError> {
    // Nothing else of the host is read because a repository says so: git follows includes here.
    let args = [
        "config",
        "--no-includes",
        "-z",
        "--blob",
        ":.gitmodules",
        "--get-regexp",
        "^submodule\\.",
    ];
    let what = "read .gitmodules, which the submodules need";
    let records = tree.git.records(what, &tree.args(&args), |_| true).await?;
    let mut said: BTreeMap<String, Said> = BTreeMap::new();
    for record in records {
        let Ok(text) = String::from_utf8(record) else {
            continue;
        };
        let (key, value) = text.split_once('\n').unwrap_or((&text, "true"));
        let inner = key
            .strip_prefix("submodule.")
            .and_then(|key| key.rsplit_once('.'));
        let Some((name, variable)) = inner else {
            continue;
        };
        let one = said.entry(name.to_owned()).or_default();
        match variable {
            "path" => one.path = Some(value.to_owned()),
            "url" => one.url = Some(value.to_owned()),
            "branch" => one.branch = Some(value.to_owned()),
            "update" => one.update = Some(value.to_owned()),
            "shallow" => one.shallow = matches!(value, "true" | "yes" | "on" | "1"),
            _ => {}
        }
    }
    Ok(said)
}

/// Whether a text can be a directory's way below another, and git's to keep things in.
fn check(what: &str, text: &str) -> Result<(), String> {
    let parts = text.split(['/', '\\']);
    let odd = |part: &str| matches!(part, "" | "." | "..") || part.eq_ignore_ascii_case(".git");
    let bad = text.len() > 1024 || text.starts_with('-') || text.chars().any(char::is_control);
    if bad || parts.into_iter().any(odd) {
        return Err(format!("its {what} {text:?} is none that git accepts"));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    check("name", name)
}

fn check_path(path: &str) -> Result<(), String> {
    check("path", path)
}

/// The directory of a submodule, which the checkout of its superproject has left empty. Nothing on
/// the way to it may be a symlink.
fn place(work: &Path, path: &str) -> Result<PathBuf, String> {
    let mut at = work.to_owned();
    for part in path.split('/') {
        at.push(part);
        let is_dir = fs::symlink_metadata(&at).is_ok_and(|of| of.is_dir());
        if !is_dir {
            return Err(format!("there is no directory {part:?} for it in the tree"));
        }
    }
    match fs::read_dir(&at).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(at),
        Ok(false) => Err("its directory is not empty".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// No submodule's repository may lie in another's.
fn apart(planned: &[Planned]) -> Result<(), GitError> {
    let names: BTreeSet<&str> = planned.iter().map(|one| one.name.as_str()).collect();
    for one in planned {
        let ends = one.name.match_indices('/');
        let inside = ends
            .filter_map(|(at, _)| one.name.get(..at))
            .find(|outer| names.contains(outer));
        if let Some(outer) = inside {
            return Err(GitError::Submodule {
                path: one.shown.clone(),
                why: format!(
                    "its name {:?} lies inside the submodule {outer:?}",
                    one.name
                ),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_that_lead_elsewhere_are_refused() {
        for good in ["lib", "a/b", "with space", "a.git", ".github", "..a"] {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "..",
            "../x",
            "a/../b",
            "a/..",
            "/abs",
            "a//b",
            "a/",
            ".git",
            "x/.GIT/hooks",
            "-u",
            "a\\..\\b",
            "a\nb",
            "./a",
        ] {
            assert!(check_path(bad).is_err(), "{bad}");
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_place_behind_a_symlink_or_in_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("real/sub")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("full")).unwrap();
        fs::write(dir.path().join("full/file"), "x").unwrap();
        let expected = dir.path().join("real/sub");
        assert_eq!(place(dir.path(), "real/sub"), Ok(expected));
        for bad in ["link/sub", "link", "full", "missing"] {
            assert!(place(dir.path(), bad).is_err(), "{bad}");
        }
    }
}
