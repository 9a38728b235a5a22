//! Projects' repositories: a bare copy of each in the private directory, so that nothing is ever
//! written into the one that was given.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::gitlab::Commit;

/// Most bytes kept of what git says.
const MAX_SAID: u64 = 256 << 10;

/// Most filters a repository may name.
const MAX_FILTERS: usize = 256;

/// Nothing that a repository's own configuration names is run.
const QUIET: [&str; 4] = [
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
];

/// What git could not do.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// It is not there.
    #[error("cannot start git: {0}; install the package git")]
    Start(#[source] std::io::Error),
    /// It failed.
    #[error("`git {what}` on {} failed: {said}", .at.display())]
    Failed {
        /// The arguments.
        what: String,
        /// The repository.
        at: PathBuf,
        /// Its own words.
        said: String,
    },
    /// No such ref.
    #[error("{} has no branch or tag {name:?}; push or name another", .at.display())]
    NoRef {
        /// The repository.
        at: PathBuf,
        /// What was asked for.
        name: String,
    },
}

/// Git without any configuration of the user's or the host's, and which asks nobody.
#[derive(Debug)]
pub(crate) struct Git {
    config: PathBuf,
}

impl Git {
    /// Git whose one configuration file lies in the private directory.
    pub(crate) fn new(state: &Path) -> std::io::Result<Self> {
        let config = state.join("gitconfig");
        // The repositories may belong to another user; they were named by whoever started this.
        // Only a file reaches the git that a clone or fetch starts on the other side.
        std::fs::write(&config, "[safe]\n\tdirectory = *\n")?;
        Ok(Self { config })
    }

    /// The program, to be run in `repository`.
    pub(super) fn command(&self, repository: &Path) -> Command {
        let mut command = Command::new("git");
        command
            .env_clear()
            .env(
                "PATH",
                std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()),
            )
            .env("HOME", "/nonexistent")
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", &self.config)
            .env("GIT_TERMINAL_PROMPT", "0")
            // What a partial clone misses is fetched by a command that its configuration names.
            .env("GIT_NO_LAZY_FETCH", "1")
            .current_dir(repository)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs it; what it printed, without white space around it.
    pub(crate) async fn run(
        &self,
        repository: &Path,
        arguments: &[&str],
    ) -> Result<String, GitError> {
        let out = self.bytes(repository, arguments, MAX_SAID).await?;
        Ok(String::from_utf8_lossy(&out).trim().to_owned())
    }

    /// Runs it; what it printed, of which there may be `most` bytes.
    pub(crate) async fn bytes(
        &self,
        repository: &Path,
        arguments: &[&str],
        most: u64,
    ) -> Result<Vec<u8>, GitError> {
        let command = self.command(repository);
        output(command, repository, arguments, most).await
    }

    /// What is not committed, as `git status --porcelain -z` has it. No filter of the repository's
    /// is run, so that a file kept through one (LFS) may be named though it did not change.
    pub(crate) async fn changes(&self, repository: &Path, most: u64) -> Result<Vec<u8>, GitError> {
        let arguments = ["config", "--list", "-z", "--name-only"];
        let names = self.bytes(repository, &arguments, MAX_SAID).await?;
        let drivers = filters(&names);
        if names.len() as u64 >= MAX_SAID || drivers.len() > MAX_FILTERS {
            return Err(GitError::Failed {
                what: "config --list".into(),
                at: repository.to_owned(),
                said: "the configuration is too large".into(),
            });
        }
        let mut command = self.command(repository);
        let settings = drivers.iter().flat_map(|driver| {
            let of = move |key: &str| format!("filter.{driver}.{key}");
            [
                (of("clean"), ""),
                (of("process"), ""),
                (of("required"), "false"),
            ]
        });
        let mut count = 0;
        for (key, value) in settings {
            command.env(format!("GIT_CONFIG_KEY_{count}"), key);
            command.env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        command.env("GIT_CONFIG_COUNT", count.to_string());
        let arguments = [
            "status",
            "--porcelain",
            "-z",
            "--no-renames",
            "--ignore-submodules=all",
        ];
        output(command, repository, &arguments, most).await
    }
    /// Makes the bare copy of `source` at `bare`.
    pub(crate) async fn copy(&self, source: &Path, bare: &Path) -> Result<(), GitError> {
        let source = source.to_string_lossy();
        let parent = bare.parent().unwrap_or(bare);
        let target = bare.to_string_lossy();
        self.run(
            parent,
            &[
                "clone",
                "--quiet",
                "--mirror",
                "--no-hardlinks",
                "--",
                &source,
                &target,
            ],
        )
        .await?;
        for setting in [
            ["uploadpack.allowAnySHA1InWant", "true"],
            ["uploadpack.allowFilter", "true"],
            ["http.receivepack", "false"],
        ] {
            self.run(bare, &["config", setting[0], setting[1]]).await?;
        }
        Ok(())
    }

    /// Brings the copy up to date, finds the commit of `name` (or of `HEAD`) and pins it under
    /// `refs/pipelines/<id>`.
    pub(crate) async fn pin(
        &self,
        bare: &Path,
        name: Option<&str>,
        id: u64,
    ) -> Result<Commit, GitError> {
        self.run(
            bare,
            &[
                "fetch",
                "--quiet",
                "origin",
                "+refs/heads/*:refs/heads/*",
                "+refs/tags/*:refs/tags/*",
            ],
        )
        .await?;
        let name = match name {
            Some(name) => name.to_owned(),
            None => self.run(bare, &["symbolic-ref", "--short", "HEAD"]).await?,
        };
        let (sha, tag) = self.resolve(bare, &name).await?;
        self.run(bare, &["update-ref", &format!("refs/pipelines/{id}"), &sha])
            .await?;
        let format = self
            .run(bare, &["rev-parse", "--show-object-format"])
            .await?;
        let commit = Commit {
            git_ref: name,
            tag,
            sha,
            format,
            ..Commit::default()
        };
        Ok(self.describe(bare, commit).await)
    }

    /// What a commit says of itself.
    async fn describe(&self, bare: &Path, commit: Commit) -> Commit {
        let default = self.run(bare, &["symbolic-ref", "--short", "HEAD"]).await;
        let shape = "--format=%cI%n%an <%ae>%n%B";
        // A message beyond all bounds is none.
        let said = self
            .run(bare, &["show", "--no-patch", shape, &commit.sha, "--"])
            .await
            .unwrap_or_default();
        let mut lines = said.splitn(3, '\n').map(str::to_owned);
        Commit {
            // A repository whose HEAD is on no branch has none.
            default_branch: default.unwrap_or_default(),
            timestamp: lines.next().unwrap_or_default(),
            author: lines.next().unwrap_or_default(),
            message: lines.next().unwrap_or_default(),
            ..commit
        }
    }

    async fn resolve(&self, bare: &Path, name: &str) -> Result<(String, bool), GitError> {
        for (place, tag) in [("refs/heads", false), ("refs/tags", true)] {
            let spec = format!("{place}/{name}^{{commit}}");
            if let Ok(sha) = self
                .run(bare, &["rev-parse", "--verify", "--quiet", &spec])
                .await
            {
                return Ok((sha, tag));
            }
        }
        Err(GitError::NoRef {
            at: bare.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// Runs a command of git's with its arguments; what it printed, of which there may be `most` bytes.
async fn output(
    mut command: Command,
    repository: &Path,
    arguments: &[&str],
    most: u64,
) -> Result<Vec<u8>, GitError> {
    let child = command.args(QUIET).args(arguments).spawn();
    let mut child = child.map_err(GitError::Start)?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read_out = async {
        if let Some(stdout) = stdout {
            let _ = stdout.take(most).read_to_end(&mut out).await;
        }
    };
    let read_err = async {
        if let Some(stderr) = stderr {
            let _ = stderr.take(MAX_SAID).read_to_end(&mut err).await;
        }
    };
    tokio::join!(read_out, read_err);
    let status = child.wait().await.map_err(GitError::Start)?;
    if status.success() {
        return Ok(out);
    }
    let what = arguments.join(" ");
    let said = String::from_utf8_lossy(&err).trim().to_owned();
    Err(GitError::Failed {
        what,
        at: repository.to_owned(),
        said,
    })
}

/// The filter drivers among names of settings, each ended by a zero byte.
fn filters(names: &[u8]) -> BTreeSet<String> {
    let names = names.split(|byte| *byte == 0);
    let names = names.filter_map(|name| std::str::from_utf8(name).ok());
    let drivers = names.filter_map(|name| {
        let (driver, _key) = name.strip_prefix("filter.")?.rsplit_once('.')?;
        Some(driver.to_owned())
    });
    drivers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_found_among_settings() {
        let names = b"core.bare\0filter.a.b.clean\0filter.x=y.process\0filter.a.b.required\0";
        let found: Vec<String> = filters(names).into_iter().collect();
        assert_eq!(found, ["a.b", "x=y"]);
    }

    /// A repository may be another user's: nothing that it names is run.
    #[tokio::test]
    async fn looking_at_changes_runs_no_command_of_the_repositorys() {
        let dir = tempfile::tempdir().unwrap();
        let (root, ran) = (dir.path().join("repository"), dir.path().join("ran"));
        std::fs::create_dir(&root).unwrap();
        let git = Git::new(dir.path()).unwrap();
        git.run(&root, &["init", "--quiet"]).await.unwrap();
        std::fs::write(root.join(".gitattributes"), "* filter=a=b\n").unwrap();
        std::fs::write(root.join("file"), "one").unwrap();
        let touch = format!("touch '{}'; cat", ran.display());
        git.run(&root, &["add", "--all"]).await.unwrap();
        git.run(&root, &["config", "core.fsmonitor", &touch])
            .await
            .unwrap();
        for key in ["clean", "process"] {
            let key = format!("filter.a=b.{key}");
            git.run(&root, &["config", &key, &touch]).await.unwrap();
        }
        git.run(&root, &["config", "filter.a=b.required", "true"])
            .await
            .unwrap();
        // As long as before: only its content tells that it changed.
        std::fs::write(root.join("file"), "two").unwrap();
        let changes = git.changes(&root, 1 << 10).await.unwrap();
        let changes = String::from_utf8_lossy(&changes);
        assert!(changes.contains("AM file"), "{changes:?}");
        assert!(!ran.exists());
        // What is left out here does run it: the test would see it.
        let _ = git.run(&root, &["status", "--porcelain"]).await;
        assert!(ran.exists());
    }
}
