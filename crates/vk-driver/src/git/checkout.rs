//! A job's tree and its `.git`, as gitlab-runner leaves them, made from the mirror.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use vk_hub_proto::job::{ObjectFormat, Sources};
use vk_vm::confine::Place;

use super::fetch::Fetched;
use super::host::{GitError, HostGit, Protocols};
use super::mirror::Mirror;
use super::unfollowed;
use crate::settings::{CLEAN_FLAGS, FetchFlags, Tags};

/// What a job wants of its sources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The spec's part.
    pub(crate) sources: &'a Sources,
    /// What the mirror's fetch brought.
    pub(crate) fetched: &'a Fetched,
    /// How it is fetched.
    pub(crate) flags: &'a FetchFlags,
    /// Whether files are checked out (STAGE-10).
    pub(crate) checkout: bool,
    /// How the tree is cleaned (STAGE-11).
    pub(crate) clean: &'a [String],
}

/// A tree and its repository, which a job gets.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(super) git: HostGit,
    pub(super) work: PathBuf,
    pub(super) git_dir: PathBuf,
}

/// What is fetched out of a mirror.
#[derive(Clone, Copy, Debug)]
pub(super) struct FromMirror<'a> {
    /// Refspecs or commits.
    pub(super) refspecs: &'a [String],
    /// 0 is all history.
    pub(super) depth: u32,
    pub(super) flags: &'a FetchFlags,
    /// The URL that stands for the mirror's.
    pub(super) url: &'a str,
}

impl Tree {
    /// Runs git in it.
    pub(super) async fn run(&self, what: &'static str, args: &[&str]) -> Result<String, GitError> {
        let all = self.args(args);
        self.git.run(what, Protocols::File, &[], &all).await
    }

    pub(super) fn args(&self, args: &[&str]) -> Vec<OsString> {
        let option = |name: &str, path: &Path| {
            let mut option = OsString::from(name);
            option.push(path);
            option
        };
        let mut all = vec![
            "-C".into(),
            self.work.clone().into(),
            option("--git-dir=", &self.git_dir),
            option("--work-tree=", &self.work),
        ];
        all.extend(args.iter().map(Into::into));
        all
    }

    /// Makes both, with a remote `origin`.
    pub(super) async fn make(&self, format: ObjectFormat, url: &str) -> Result<(), GitError> {
        fs::create_dir_all(&self.work).map_err(GitError::file("make", &self.work))?;
        let format = match format {
            ObjectFormat::Sha1 => "--object-format=sha1",
            ObjectFormat::Sha256 => "--object-format=sha256",
        };
        let what = "make the job's tree";
        self.run(what, &["init", "-q", "--template=", format])
            .await?;
        self.run("name the remote", &["remote", "add", "--", "origin", url])
            .await?;
        // The tree moves to another disk: what git remembers of its files' inodes is then wrong.
        self.run(what, &["config", "core.trustctime", "false"])
            .await?;
        self.run(what, &["config", "core.checkStat", "minimal"])
            .await?;
        Ok(())
    }

    /// Fetches out of a mirror; nothing in the tree names it afterwards.
    pub(super) async fn fetch(&self, mirror: &Mirror, of: FromMirror<'_>) -> Result<(), GitError> {
        let url = mirror.url();
        let depth = format!("--depth={}", of.depth);
        let mut fetch = vec![
            "fetch",
            "--quiet",
            "--no-recurse-submodules",
            "--update-shallow",
            "--prune",
        ];
        if of.depth > 0 {
            fetch.push(&depth);
        }
        fetch.extend(of.flags.shallow.iter().map(String::as_str));
        match of.flags.tags {
            Tags::Followed => {}
            Tags::All => fetch.push("--tags"),
            Tags::None => fetch.push("--no-tags"),
        }
        fetch.extend(["--", &url]);
        fetch.extend(of.refspecs.iter().map(String::as_str));
        let git = mirror.read_by(&self.git);
        let what = "bring the commits into the job's tree";
        git.run(what, Protocols::File, &[], &self.args(&fetch))
            .await?;
        hide_mirror(&self.git_dir.join("FETCH_HEAD"), &url, of.url)?;
        hide_mirror(&self.git_dir.join("logs"), &url, of.url)
    }

    /// Fetches what a job wants; the refspecs by which it was.
    pub(super) async fn fetch_wanted(
        &self,
        mirror: &Mirror,
        wanted: Wanted<'_>,
    ) -> Result<Vec<String>, GitError> {
        let sources = wanted.sources;
        let mut refspecs = wanted.fetched.refspecs.clone();
        if wanted.fetched.by_branch {
            // It may lie deeper in the branch than the job's depth.
            refspecs.push(sources.sha.clone());
        }
        let from = FromMirror {
            refspecs: &refspecs,
            depth: wanted.flags.depth.unwrap_or(sources.depth),
            flags: wanted.flags,
            url: &sources.repo_url,
        };
        self.fetch(mirror, from).await?;
        Ok(refspecs)
    }

    /// Puts a commit's files into the tree, where they are not too much for it.
    pub(super) async fn check_out(&self, sha: &str) -> Result<(), GitError> {
        self.look_at(sha).await?;
        let what = "check the commit out";
        self.run(what, &["checkout", "-f", "-q", sha])
            .await
            .map(drop)
    }
}

/// Makes the tree at `tree`, a directory that is made here. Its remote `origin` has the URL
/// without any token; nothing in it names the mirror.
pub(crate) async fn check_out(
    git: &HostGit,
    mirror: &Mirror,
    wanted: Wanted<'_>,
    tree: &Path,
) -> Result<Tree, GitError> {
    let sources = wanted.sources;
    let tree = Tree {
        git: mirror.read_by(git).seeing(&[Place::write(tree)]),
        work: tree.to_owned(),
        git_dir: tree.join(".git"),
    };
    tree.make(sources.object_format, &sources.repo_url).await?;
    tree.fetch_wanted(mirror, wanted).await?;
    if wanted.checkout {
        tree.check_out(&sources.sha).await?;
    }
    // In a new tree there is nothing to be cleaned: it is for flags that are none to be said.
    if wanted.checkout && !wanted.clean.is_empty() && wanted.clean != [CLEAN_FLAGS] {
        let words = ["clean"].into_iter();
        let words: Vec<_> = words
            .chain(wanted.clean.iter().map(String::as_str))
            .collect();
        tree.run("clean the tree", &words).await?;
    }
    Ok(tree)
}

/// Puts the repository's URL where the mirror's stands.
fn hide_mirror(path: &Path, mirror: &str, url: &str) -> Result<(), GitError> {
    // Git leaves the ending out in places. Names of refs are bytes, and may be no text.
    let hidden = |bytes: &[u8]| {
        let without = replaced(bytes, mirror.as_bytes(), url.as_bytes());
        replaced(&without, stem(mirror).as_bytes(), stem(url).as_bytes())
    };
    unfollowed::change(path, &hidden).map_err(GitError::file("change", path))
}

/// Bytes with each occurrence of some, of which there is at least one, replaced.
fn replaced(bytes: &[u8], some: &[u8], by: &[u8]) -> Vec<u8> {
    let mut made = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for at in memchr::memmem::find_iter(bytes, some) {
        made.extend_from_slice(bytes.get(from..at).unwrap_or_default());
        made.extend_from_slice(by);
        from = at + some.len();
    }
    made.extend_from_slice(bytes.get(from..).unwrap_or_default());
    made
}

fn stem(url: &str) -> &str {
    url.strip_suffix(".git").unwrap_or(url)
}
