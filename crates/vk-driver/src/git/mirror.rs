//! A project's repository on this host: only ever fetched into.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use vk_hub_proto::job::ObjectFormat;
use vk_vm::confine::Place;

use super::credential::Way;
use super::host::{GitError, HostGit, Protocols};
use super::lock::Lock;
use super::room::{self, Room};

/// A mirror, held for one job.
#[derive(Debug)]
pub(crate) struct Mirror {
    path: PathBuf,
    git: HostGit,
    format: ObjectFormat,
    /// Held until the job has its tree: refs may move with every fetch.
    lock: Lock,
}

impl Mirror {
    /// Opens a mirror of this name ([`name_of_project`]) below `root`, once no other job uses it.
    pub(crate) async fn open(
        root: &Path,
        git: HostGit,
        name: &str,
        format: ObjectFormat,
    ) -> Result<Mirror, GitError> {
        let path = root.join(format!("{name}.git"));
        let lock_path = root.join(format!("{name}.lock"));
        let lock = Lock::take(&lock_path).await?;
        room::date(&lock_path);
        // What a git wrote there as its settings the next job's would follow, with its credential.
        let own = [
            Place::write(&path),
            Place::read(path.join("config")),
            Place::write(path.with_extension("new")),
        ];
        let mirror = Mirror {
            path,
            git: git.under(&lock).seeing(&own),
            format,
            lock,
        };
        if !mirror.path.join("HEAD").exists() {
            mirror.make(format).await?;
        }
        Ok(mirror)
    }

    #[cfg(test)]
    pub(super) fn git(&self) -> &HostGit {
        &self.git
    }

    /// The job has what it needs: what is too much on this host goes (never what a job uses), and
    /// the next job may have the mirror.
    pub(crate) async fn done(self) {
        let (Some(root), Some(name)) = (self.path.parent(), self.path.file_stem()) else {
            return;
        };
        let (root, name) = (root.to_owned(), name.to_string_lossy().into_owned());
        let bounds = self.git.bounds;
        let room = Room { root, bounds };
        let settling = tokio::task::spawn_blocking(move || {
            room.settle(&name);
            drop(self);
        });
        // A runtime that ends leaves it to the next job.
        let _ = settling.await;
    }

    /// A mirror that was half made is none.
    async fn make(&self, format: ObjectFormat) -> Result<(), GitError> {
        let new = self.path.with_extension("new");
        for path in [&new, &self.path] {
            match fs::remove_dir_all(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(GitError::file("remove", path)(error));
                }
                _ => {}
            }
        }
        fs::create_dir_all(&new).map_err(GitError::file("make", &new))?;
        let format = match format {
            ObjectFormat::Sha1 => "sha1",
            ObjectFormat::Sha256 => "sha256",
        };
        let mut args: Vec<OsString> = ["init", "-q", "--bare", "--template="]
            .map(Into::into)
            .into();
        args.push(format!("--object-format={format}").into());
        args.push(new.clone().into());
        let what = "make a mirror";
        self.git.run(what, Protocols::File, &[], &args).await?;
        // A submodule's commit is often no branch's tip.
        let mut args: Vec<OsString> = vec!["-C".into(), new.clone().into()];
        args.extend(["config", "uploadpack.allowAnySHA1InWant", "true"].map(Into::into));
        self.git.run(what, Protocols::File, &[], &args).await?;
        fs::rename(&new, &self.path).map_err(GitError::file("make", &self.path))
    }

    /// A git that reads from the mirror: it has its lock.
    pub(super) fn read_by(&self, git: &HostGit) -> HostGit {
        git.under(&self.lock).seeing(&[Place::read(&self.path)])
    }

    /// The URL of the mirror, for a job's own fetch.
    pub(super) fn url(&self) -> String {
        format!("file://{}", self.path.display())
    }

    /// Fetches from a server into the mirror, under the server's names; tags that the server does
    /// not have any more go, with `tags`. One that cannot take it is made anew, once: nothing is lost
    /// that the server does not have, and nobody else uses it now.
    pub(super) async fn bring(
        &self,
        url: &str,
        sources: &[String],
        tags: bool,
        way: &Way,
    ) -> Result<(), GitError> {
        let mut args = self.args(&[
            "fetch",
            "--quiet",
            "--force",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            // Without it nothing comes from a server whose repository is a shallow clone itself.
            "--update-shallow",
        ]);
        if tags {
            args.push("--prune".into());
        }
        args.extend(["--".into(), url.into()]);
        args.extend(sources.iter().map(|source| format!("+{source}").into()));
        let all = "refs/tags/*:refs/tags/*";
        if tags && !sources.iter().any(|source| source == all) {
            args.push(format!("+{all}").into());
        }
        let what = "fetch the repository";
        let git = self.git.seeing(&way.places);
        let settings = &way.settings;
        let error = match git.run(what, Protocols::Http, settings, &args).await {
            Err(error) if is_stale(error.said()) => error,
            done => return done.map(drop),
        };
        tracing::info!(%error, "a mirror is made anew: {}", self.path.display());
        self.make(self.format).await?;
        let again = git.run(what, Protocols::Http, settings, &args).await;
        again.map(drop)
    }

    /// Whether a commit's attributes name files of Git LFS.
    pub(crate) async fn names_lfs(&self, sha: &str) -> Result<bool, GitError> {
        let mut args = self.args(&["grep", "-q", "-F", "-e", "filter=lfs"]);
        args.push(sha.into());
        args.extend(["--", ":(top,glob,icase)**/.gitattributes"].map(Into::into));
        match self
            .git
            .run("read the attributes", Protocols::File, &[], &args)
            .await
        {
            Ok(_) => Ok(true),
            Err(GitError::Failed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a commit is here.
    pub(super) async fn has(&self, sha: &str) -> Result<bool, GitError> {
        let mut args = self.args(&["cat-file", "-e"]);
        args.push(format!("{sha}^{{commit}}").into());
        let what = "find the commit";
        match self.git.run(what, Protocols::File, &[], &args).await {
            Ok(_) => Ok(true),
            Err(GitError::Failed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The commit that a ref of the mirror names.
    pub(super) async fn commit_of(&self, reference: &str) -> Result<String, GitError> {
        let mut args = self.args(&["rev-parse", "--verify"]);
        args.push(format!("{reference}^{{commit}}").into());
        let found = self.git.run("find a branch", Protocols::File, &[], &args);
        Ok(found.await?.trim().to_owned())
    }

    fn args(&self, args: &[&str]) -> Vec<OsString> {
        let mut all: Vec<OsString> = vec!["-C".into(), self.path.clone().into()];
        all.extend(args.iter().map(Into::into));
        all
    }
}

/// What the mirror of a project of a server is called.
pub(crate) fn name_of_project(server: &str, project: u64, format: ObjectFormat) -> String {
    let kind = kind(format);
    format!("{}-{project}{kind}", plain(server))
}

/// What the mirror of a submodule's repository is called: by its URL, which says whose it is.
pub(crate) fn name_of_url(url: &str, format: ObjectFormat) -> String {
    let digest = vk_oci::Digest::of(url.as_bytes()).hex();
    let short = digest.get(..32).unwrap_or_default();
    format!("{}-url-{short}{}", plain(url), kind(format))
}

/// A repository that changed its hash function is another one.
fn kind(format: ObjectFormat) -> &'static str {
    match format {
        ObjectFormat::Sha1 => "",
        ObjectFormat::Sha256 => "-sha256",
    }
}

/// A URL's begin, as a part of a file's name.
fn plain(url: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let host: String = url
        .trim_start_matches("https://")
        .chars()
        .map(plain)
        .collect();
    host.get(..host.len().min(128))
        .unwrap_or_default()
        .to_owned()
}

/// The mirror's own state is in the way: a branch that is now a directory of branches, or an object
/// that a crash left damaged.
fn is_stale(said: &str) -> bool {
    const SIGNS: [&str; 5] = [
        "not a git repository",
        "cannot lock ref",
        "some local refs could not be updated",
        "is corrupt",
        "is empty",
    ];
    SIGNS.iter().any(|sign| said.contains(sign))
}
