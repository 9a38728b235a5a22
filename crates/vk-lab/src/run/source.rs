//! The project: a repository's `HEAD`, or a directory as it stands.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::copy;
use super::error::{RunError, file};
use crate::serve::Git;

/// The file that says what to run.
pub(super) const CONFIG: &str = ".gitlab-ci.yml";
/// Largest such file; what is larger is refused by its reader.
const MAX_CONFIG: u64 = 2 << 20;
/// Most bytes of git's list of changes.
const MAX_CHANGES: u64 = 1 << 20;
/// Uncommitted changes named.
const NAMED: usize = 5;

/// What is run.
#[derive(Debug)]
pub(super) struct Source {
    /// The project's directory, as it was given.
    pub(super) root: PathBuf,
    /// The repository that is copied from.
    pub(super) repository: PathBuf,
    /// The project's path at the GitLab side.
    pub(super) path: String,
    /// The branch or tag.
    pub(super) git_ref: String,
    /// What stands in the configuration's file.
    pub(super) config: String,
    /// What the user should know.
    pub(super) notes: Vec<String>,
}

impl Source {
    /// Looks at a directory; what has to be made is made in `scratch`.
    pub(super) async fn open(git: &Git, dir: &Path, scratch: &Path) -> Result<Self, RunError> {
        let root = find(dir)?;
        if !root.is_dir() {
            return Err(project(&root, "it is no directory; name the project's"));
        }
        if is_root(git, &root).await {
            repository(git, root, scratch).await
        } else {
            plain(git, root, scratch).await
        }
    }

    /// Only what stands in the configuration's file.
    pub(super) async fn text(git: &Git, dir: &Path) -> Result<String, RunError> {
        let root = find(dir)?;
        if is_root(git, &root).await {
            let config = committed(git, &root, "HEAD").await?;
            return text(&root, config);
        }
        let path = root.join(CONFIG);
        text(&root, read(&path)?)
    }
}

/// The directory's real path.
fn find(dir: &Path) -> Result<PathBuf, RunError> {
    dir.canonicalize()
        .map_err(|error| project(dir, format!("{error}; name the project's directory")))
}

/// The configuration's file, which is no pipe or device and no larger than its reader takes.
fn read(path: &Path) -> Result<Vec<u8>, RunError> {
    let unreadable = |error: io::Error| project(path, format!("cannot be read: {error}"));
    // A device has no end, and nobody may ever write to a pipe.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(project(path, "it is no file; put the configuration there"));
    }
    let mut bytes = Vec::new();
    let opened = fs::File::open(path).map_err(unreadable)?;
    let read = opened.take(MAX_CONFIG).read_to_end(&mut bytes);
    read.map_err(unreadable)?;
    Ok(bytes)
}

fn project(path: &Path, why: impl Into<String>) -> RunError {
    RunError::Project {
        path: path.to_owned(),
        why: why.into(),
    }
}

/// Whether a directory is the root of a repository: of its work tree, or a bare one.
async fn is_root(git: &Git, dir: &Path) -> bool {
    let same = |text: &str| Path::new(text).canonicalize().is_ok_and(|real| real == dir);
    match git.run(dir, &["rev-parse", "--show-toplevel"]).await {
        Ok(top) if !top.is_empty() => same(&top),
        // In a bare repository there is no work tree.
        _ => {
            let own = git.run(dir, &["rev-parse", "--absolute-git-dir"]).await;
            own.is_ok_and(|own| same(&own))
        }
    }
}

async fn repository(git: &Git, root: PathBuf, scratch: &Path) -> Result<Source, RunError> {
    let head = git
        .run(
            &root,
            &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"],
        )
        .await
        .map_err(|_| project(&root, "the repository has no commit yet; commit first"))?;
    let config = committed(git, &root, &head).await?;
    let mut notes: Vec<String> = changes(git, &root).await.into_iter().collect();
    let branch = git.run(&root, &["symbolic-ref", "--quiet", "--short", "HEAD"]);
    let (repository, git_ref) = match branch.await {
        Ok(branch) => (root.clone(), branch),
        Err(_) => detached(git, &root, &head, scratch).await?,
    };
    if head_is_shallow(git, &root).await {
        notes.push("the repository is a shallow clone: jobs see no older commits".into());
    }
    Ok(Source {
        path: path_of(&root),
        repository,
        git_ref,
        config: text(&root, config)?,
        notes,
        root,
    })
}

/// The configuration of a commit.
async fn committed(git: &Git, root: &Path, commit: &str) -> Result<Vec<u8>, RunError> {
    let spec = format!("{commit}:{CONFIG}");
    let arguments = ["cat-file", "blob", &spec];
    let read = git.bytes(root, &arguments, MAX_CONFIG).await;
    read.map_err(|_| project(root, format!("HEAD holds no {CONFIG}; commit one")))
}

async fn head_is_shallow(git: &Git, root: &Path) -> bool {
    let shallow = git.run(root, &["rev-parse", "--is-shallow-repository"]);
    shallow.await.is_ok_and(|word| word == "true")
}

/// A `HEAD` on no branch: the tag that stands there, or a branch of a copy.
async fn detached(
    git: &Git,
    root: &Path,
    head: &str,
    scratch: &Path,
) -> Result<(PathBuf, String), RunError> {
    let tags = git.run(root, &["tag", "--points-at", "HEAD"]).await?;
    if let Some(tag) = tags.lines().next() {
        return Ok((root.to_owned(), tag.to_owned()));
    }
    let copy = scratch.join("source.git");
    git.copy(root, &copy).await?;
    let short: String = head.chars().take(8).collect();
    let branch = format!("detached-{short}");
    let place = format!("refs/heads/{branch}");
    git.run(&copy, &["update-ref", &place, head]).await?;
    Ok((copy, branch))
}

/// One line about what is not committed; nothing where all is.
async fn changes(git: &Git, root: &Path) -> Option<String> {
    let Ok(list) = git.changes(root, MAX_CHANGES).await else {
        return Some("HEAD is run; whether something is not committed cannot be told".into());
    };
    let entries: Vec<String> = list
        .split(|byte| *byte == 0)
        .filter(|entry| !entry.is_empty())
        .map(|entry| {
            let text = String::from_utf8_lossy(entry);
            text.chars().filter(|c| !c.is_control()).collect()
        })
        .collect();
    let first = entries.iter().take(NAMED).map(|entry| entry.trim());
    let named = first.collect::<Vec<_>>().join(", ");
    let more = match entries.len() {
        0 => return None,
        count if count > NAMED => format!(" and {} more", count - NAMED),
        _ => String::new(),
    };
    Some(format!(
        "HEAD is run; uncommitted changes are not: {named}{more}"
    ))
}

async fn plain(git: &Git, root: PathBuf, scratch: &Path) -> Result<Source, RunError> {
    let config = root.join(CONFIG);
    if !config.exists() {
        let why = format!("there is no {CONFIG} in it; name the project's directory");
        return Err(project(&root, why));
    }
    // Before anything is copied, and through a link as it leads from where it stands.
    let bytes = read(&config)?;
    let tree = scratch.join("source");
    fs::create_dir(&tree).map_err(file("create", &tree))?;
    let (from, to) = (root.clone(), tree.clone());
    let copied = tokio::task::spawn_blocking(move || copy::tree(&from, &to)).await;
    let copied = copied.map_err(|error| RunError::System(std::io::Error::other(error)))??;
    git.run(&tree, &["init", "--quiet", "--initial-branch=main"])
        .await?;
    git.run(&tree, &["add", "--all", "--force", "."]).await?;
    let author = [
        "-c",
        "user.name=vk-lab",
        "-c",
        "user.email=vk-lab@localhost",
    ];
    let commit = [
        "commit",
        "--quiet",
        "--no-verify",
        "--message",
        "As it stands",
    ];
    git.run(&tree, &[&author[..], &commit[..]].concat()).await?;
    let mut notes =
        vec!["the directory is no repository's root: it is run as it stands".to_owned()];
    if copied.specials > 0 {
        let count = copied.specials;
        notes.push(format!("{count} sockets, pipes or devices are left out"));
    }
    Ok(Source {
        path: path_of(&root),
        repository: tree,
        git_ref: "main".into(),
        config: text(&root, bytes)?,
        notes,
        root,
    })
}

fn text(root: &Path, bytes: Vec<u8>) -> Result<String, RunError> {
    String::from_utf8(bytes).map_err(|_| project(&root.join(CONFIG), "it is no UTF-8 text"))
}

/// `lab/` and the directory's name, as far as a project's path can hold that.
fn path_of(root: &Path) -> String {
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".git").unwrap_or(&name);
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || "-_.".contains(c) => c,
        _ => '-',
    };
    let name: String = name.chars().map(plain).take(64).collect();
    let name = name.trim_matches(|c| "-_.".contains(c));
    format!("lab/{}", if name.is_empty() { "project" } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_projects_path_is_plain() {
        for (dir, path) in [
            ("/srv/web", "lab/web"),
            ("/srv/web.git", "lab/web"),
            ("/srv/My Web!", "lab/My-Web"),
            ("/srv/..x", "lab/x"),
            ("/", "lab/project"),
        ] {
            assert_eq!(path_of(Path::new(dir)), path, "{dir}");
        }
    }
}
