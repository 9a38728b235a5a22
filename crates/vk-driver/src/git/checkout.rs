//! A job's tree and its `.git`, as gitlab-runner leaves them, made from the mirror.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use vk_hub_proto::job::{ObjectFormat, Sources};

use super::host::{GitError, HostGit, Protocols};
use super::mirror::{Fetched, Mirror};

/// What a job wants of its sources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The spec's part.
    pub(crate) sources: &'a Sources,
    /// What the mirror's fetch brought.
    pub(crate) fetched: &'a Fetched,
    /// Whether files are checked out (STAGE-10).
    pub(crate) checkout: bool,
}

/// Makes the tree at `tree`, a directory that is made here. Its remote `origin` has the URL
/// without any token; nothing in it names the mirror.
pub(crate) async fn check_out(
    git: &HostGit,
    mirror: &Mirror,
    wanted: Wanted<'_>,
    tree: &Path,
) -> Result<(), GitError> {
    let Wanted {
        sources,
        fetched,
        checkout,
    } = wanted;
    fs::create_dir_all(tree).map_err(GitError::file("make", tree))?;
    let format = match sources.object_format {
        ObjectFormat::Sha1 => "--object-format=sha1",
        ObjectFormat::Sha256 => "--object-format=sha256",
    };
    let run = async |what, args: &[&str]| {
        let mut all: Vec<OsString> = vec!["-C".into(), tree.into()];
        all.extend(args.iter().map(Into::into));
        git.run(what, Protocols::File, &[], &all).await
    };
    run(
        "make the job's tree",
        &["init", "-q", "--template=", format],
    )
    .await?;
    let remote = ["remote", "add", "origin", sources.repo_url.as_str()];
    run("name the remote", &remote).await?;
    // The tree moves to another disk: what git remembers of its files' inodes is then wrong.
    run(
        "set up the job's tree",
        &["config", "core.trustctime", "false"],
    )
    .await?;
    run(
        "set up the job's tree",
        &["config", "core.checkStat", "minimal"],
    )
    .await?;
    let url = mirror.url();
    let depth = format!("--depth={}", sources.depth);
    let mut fetch = vec![
        "fetch",
        "--quiet",
        "--no-recurse-submodules",
        "--update-shallow",
    ];
    if sources.depth > 0 {
        fetch.push(&depth);
    }
    fetch.extend(["--", &url]);
    fetch.extend(fetched.refspecs.iter().map(String::as_str));
    run("bring the commits into the job's tree", &fetch).await?;
    hide_mirror(&tree.join(".git/FETCH_HEAD"), &url, &sources.repo_url)?;
    hide_mirror(&tree.join(".git/logs"), &url, &sources.repo_url)?;
    if checkout {
        let sha = ["checkout", "-f", "-q", sources.sha.as_str()];
        run("check the commit out", &sha).await?;
    }
    Ok(())
}

/// Puts the repository's URL where the mirror's stands.
fn hide_mirror(path: &Path, mirror: &str, url: &str) -> Result<(), GitError> {
    if path.is_dir() {
        let entries = fs::read_dir(path).map_err(GitError::file("read", path))?;
        for entry in entries {
            let entry = entry.map_err(GitError::file("read", path))?;
            hide_mirror(&entry.path(), mirror, url)?;
        }
        return Ok(());
    }
    match fs::read_to_string(path) {
        // Git leaves the ending out in places.
        Ok(text) if text.contains(stem(mirror)) => {
            let text = text.replace(mirror, url).replace(stem(mirror), stem(url));
            fs::write(path, text).map_err(GitError::file("write", path))
        }
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(GitError::file("read", path)(error))
        }
        _ => Ok(()),
    }
}

fn stem(url: &str) -> &str {
    url.strip_suffix(".git").unwrap_or(url)
}
