//! A project's repository on this host: only ever fetched into.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use vk_hub_proto::job::{ObjectFormat, RefType, Sources};

use super::credential::Credential;
use super::host::{GitError, HostGit, Protocols};

/// How often a pipeline's ref that is not there yet is asked for again, and after how long each
/// (STAGE-38).
const REF_WAITS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// How often it is looked whether another job is done with the mirror.
const LOCK_WAIT: Duration = Duration::from_millis(100);

/// A mirror, held for one job.
#[derive(Debug)]
pub(crate) struct Mirror {
    path: PathBuf,
    git: HostGit,
    /// Held until the job has its tree: refs may move with every fetch.
    _lock: MirrorLock,
}

/// What a fetch brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// The refspecs that a job's own fetch uses.
    pub(crate) refspecs: Vec<String>,
    /// The pipeline's ref was missing; the branch has the commit.
    pub(crate) by_branch: bool,
}

impl Mirror {
    /// Opens the mirror of a project below `root`, once no other job uses it.
    pub(crate) async fn open(
        root: &Path,
        git: HostGit,
        server: &str,
        project: u64,
        format: ObjectFormat,
    ) -> Result<Mirror, GitError> {
        let name = name(server, project);
        let path = root.join(format!("{name}.git"));
        let lock = lock(&root.join(format!("{name}.lock"))).await?;
        let mirror = Mirror {
            path,
            git,
            _lock: lock,
        };
        if !mirror.path.join("HEAD").exists() {
            mirror.make(format).await?;
        }
        Ok(mirror)
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
        let format = match format {
            ObjectFormat::Sha1 => "sha1",
            ObjectFormat::Sha256 => "sha256",
        };
        let mut args: Vec<OsString> = ["init", "-q", "--bare", "--template="]
            .map(Into::into)
            .into();
        args.push(format!("--object-format={format}").into());
        args.push(new.clone().into());
        self.git
            .run("make a mirror", Protocols::File, &[], &args)
            .await?;
        fs::rename(&new, &self.path).map_err(GitError::file("make", &self.path))
    }

    /// The URL of the mirror, for a job's own fetch.
    pub(super) fn url(&self) -> String {
        format!("file://{}", self.path.display())
    }

    /// Brings what the job's sources name, with the job's own token.
    pub(crate) async fn fetch(
        &self,
        sources: &Sources,
        credential: &Credential,
        ca: Option<&Path>,
    ) -> Result<Fetched, GitError> {
        let sha = &sources.sha;
        let fine = matches!(sha.len(), 40 | 64) && sha.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !fine {
            return Err(GitError::Spec {
                what: "commit",
                value: sha.clone(),
            });
        }
        let refspecs = refspecs(sources)?;
        let mut waits = REF_WAITS.iter();
        let mut remade = false;
        loop {
            let error = match self.fetch_refs(sources, &refspecs, credential, ca).await {
                Ok(()) => break,
                Err(error) => error,
            };
            if is_stale(error.said()) && !remade {
                // Nothing is lost that the server does not have; nobody else uses the mirror now.
                remade = true;
                self.make(sources.object_format).await?;
                continue;
            }
            if !is_missing_pipeline(error.said()) {
                return Err(error);
            }
            match waits.next() {
                Some(wait) => tokio::time::sleep(*wait).await,
                None => return self.fetch_branch(sources, credential, ca).await,
            }
        }
        self.check(sources).await?;
        Ok(Fetched {
            refspecs,
            by_branch: false,
        })
    }

    /// The pipeline's ref is gone: its branch, if that still has the commit (STAGE-38).
    async fn fetch_branch(
        &self,
        sources: &Sources,
        credential: &Credential,
        ca: Option<&Path>,
    ) -> Result<Fetched, GitError> {
        let refspecs = vec![own_refspec(sources)?];
        self.fetch_refs(sources, &refspecs, credential, ca).await?;
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
        credential: &Credential,
        ca: Option<&Path>,
    ) -> Result<(), GitError> {
        let mut settings = credential.settings().to_vec();
        if let Some(ca) = ca {
            settings.push(("http.sslCAInfo".to_owned(), ca.display().to_string()));
        }
        let mut args = self.args(&[
            "fetch",
            "--quiet",
            "--force",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            // Without it nothing comes from a server whose repository is a shallow clone itself.
            "--update-shallow",
            "--",
        ]);
        args.push(sources.repo_url.as_str().into());
        // The mirror has the server's names; where a job wants them is the job's.
        args.extend(refspecs.iter().filter_map(|refspec| {
            let (source, _) = refspec.trim_start_matches('+').split_once(':')?;
            Some(format!("+{source}:{source}").into())
        }));
        self.git
            .run("fetch the repository", Protocols::Http, &settings, &args)
            .await?;
        Ok(())
    }

    /// Whether the commit is here, where this job may have it from.
    async fn check(&self, sources: &Sources) -> Result<(), GitError> {
        let mut args = self.args(&["cat-file", "-e"]);
        args.push(format!("{}^{{commit}}", sources.sha).into());
        let found = self
            .git
            .run("find the commit", Protocols::File, &[], &args)
            .await;
        found.map(drop).map_err(|error| match error {
            GitError::Failed { .. } => GitError::NoCommit {
                sha: sources.sha.clone(),
                reference: sources.ref_name.clone(),
            },
            other => other,
        })
    }

    fn args(&self, args: &[&str]) -> Vec<OsString> {
        let mut all: Vec<OsString> = vec!["-C".into(), self.path.clone().into()];
        all.extend(args.iter().map(Into::into));
        all
    }
}

/// A file's name for a project of a server.
fn name(server: &str, project: u64) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let host: String = server
        .trim_start_matches("https://")
        .chars()
        .map(plain)
        .collect();
    format!(
        "{}-{project}",
        host.get(..host.len().min(128)).unwrap_or_default()
    )
}

/// A mirror's lock, for as long as it is kept.
#[derive(Debug)]
struct MirrorLock(File);

impl Drop for MirrorLock {
    fn drop(&mut self) {
        // Closing alone would not do: a child that another thread has forked and that has not come to
        // its exec holds the file too.
        let _ = self.0.unlock();
    }
}

/// Waits for the lock; the job's own timeout bounds the wait.
async fn lock(path: &Path) -> Result<MirrorLock, GitError> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(GitError::file("make", dir))?;
    }
    let mut options = OpenOptions::new();
    let options = options.create(true).truncate(false).write(true);
    let file = options.open(path).map_err(GitError::file("open", path))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(MirrorLock(file)),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_WAIT).await,
            Err(TryLockError::Error(error)) => return Err(GitError::file("lock", path)(error)),
        }
    }
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
        RefType::Branch => format!("+refs/heads/{name}:refs/remotes/origin/{name}"),
        RefType::Tag => format!("+refs/tags/{name}:refs/tags/{name}"),
    })
}

fn is_missing_pipeline(said: &str) -> bool {
    said.contains("couldn't find remote ref refs/pipelines/")
}

/// The mirror's own state is in the way: a branch that is now a directory of branches, or an object
/// that a crash left damaged.
fn is_stale(said: &str) -> bool {
    const SIGNS: [&str; 4] = [
        "cannot lock ref",
        "some local refs could not be updated",
        "is corrupt",
        "is empty",
    ];
    SIGNS.iter().any(|sign| said.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_that_is_dropped_is_free_although_a_fork_still_holds_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path).await.unwrap();
        let _fork = held.0.try_clone().unwrap();
        let second = tokio::time::timeout(LOCK_WAIT * 2, lock(&path)).await;
        assert!(second.is_err(), "it is held");
        drop(held);
        lock(&path).await.map(drop).unwrap();
    }
}
