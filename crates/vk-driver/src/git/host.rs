//! The host's git, with nothing of the host's configuration and nothing that a repository could
//! make it run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::extent::Trees;
use super::limits::Limits;
use super::lock::{Lock, Shared};
use super::room::SourceBounds;
use super::walls::{GitWalls, PATH};
use command_fds::CommandFdExt as _;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdout, Command};
use tokio::time::timeout;
use vk_vm::confine::{Place, UNWALLED};

/// What is kept of what git says.
const SAID_MAX: usize = 64 << 10;
/// What is kept of lists, in bytes.
const RECORDS_MAX: usize = 16 << 20;
/// One git may take this long; a job's timeout usually comes first.
const LIMIT: Duration = Duration::from_secs(3600);
/// What of the host's environment git needs on the way to a server.
pub(super) const PROXIES: [&str; 7] = [
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
];

/// Names the job's directory, where this is a process of a node's: by it the node finds what a job's
/// process that died left running.
const OF_JOB: &str = "VK_JOB";

/// Why git did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    /// It could not be started.
    #[error("the node's git cannot be run (package git): {0}")]
    Start(#[source] std::io::Error),
    /// There are no walls around it, so it was not run.
    #[error(
        "the node's git cannot be confined: {}; `vk check` tries it and says what to do",
        .0.trim_end()
    )]
    Walls(String),
    /// It failed, and says why.
    #[error("git cannot {what}: {}", .said.trim_end())]
    Failed {
        /// What it should do.
        what: &'static str,
        /// The end of its stderr.
        said: String,
    },
    /// It took too long.
    #[error("git could not {what} within {} s", .after.as_secs())]
    Timeout {
        /// What it should do.
        what: &'static str,
        /// The limit.
        after: Duration,
    },
    /// A file around it.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A repository is larger than this host has room for.
    #[error(
        "git cannot {what}: it would write a file of more than {most} bytes, and a project may have \
         no more on this node: fetch less of it (GIT_DEPTH), or raise [sources] max_project there"
    )]
    TooLarge {
        /// What it should do.
        what: &'static str,
        /// The largest, in bytes.
        most: u64,
    },
    /// It has no more memory.
    #[error(
        "git cannot {what}: one git may have {} MiB of this node's memory, and the repository takes \
         more: it holds something very large (a commit's message, a directory, a file that is kept \
         as differences) or very much; take that out of it, or raise [sources] max_git_memory there",
        .most >> 20
    )]
    Memory {
        /// What it should do.
        what: &'static str,
        /// The most, in bytes.
        most: u64,
    },
    /// A commit's files are more than a job may have.
    #[error("the commit is not checked out: {0}")]
    Extent(String),
    /// The commit is not there.
    #[error(
        "commit {sha} is not in the repository (ref {reference}): it was removed, or the branch \
         was force-pushed; run a new pipeline"
    )]
    NoCommit {
        /// The commit.
        sha: String,
        /// The branch or tag.
        reference: String,
    },
    /// A submodule cannot be had.
    #[error("submodule {path:?}: {why}")]
    Submodule {
        /// Where it lies in the job's tree.
        path: String,
        /// Why not, and what would help.
        why: String,
    },
    /// Files behind LFS pointers.
    #[error("cannot bring the LFS files: {0}")]
    Lfs(String),
    /// What the job says of its sources is no git's.
    #[error("the job's {what} {value:?} cannot be used")]
    Spec {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: String,
    },
}

impl GitError {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> GitError {
        let path = path.to_owned();
        move |source| GitError::File { what, path, source }
    }

    /// What git said, where it failed.
    pub(super) fn said(&self) -> &str {
        match self {
            GitError::Failed { said, .. } => said,
            _ => "",
        }
    }
}

/// Which protocols one command may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocols {
    /// To a server.
    Http,
    /// To a mirror on this host.
    File,
}

/// The host's git.
#[derive(Clone, Debug)]
pub(crate) struct HostGit {
    /// An empty directory as its home.
    home: PathBuf,
    /// What of the host's disk it may take.
    pub(super) bounds: SourceBounds,
    /// What the job's trees may be.
    pub(super) trees: Trees,
    /// Locks of what it works on, which it has as long as the job keeps them.
    locks: Vec<Shared>,
    /// Walls around it; none where the operator wants none.
    walls: Option<GitWalls>,
    /// What it sees beside its home.
    seen: Vec<Place>,
}

impl HostGit {
    /// With this directory, made where missing, as its home.
    pub(crate) fn new(home: PathBuf) -> Result<HostGit, GitError> {
        std::fs::create_dir_all(&home).map_err(GitError::file("make", &home))?;
        Ok(HostGit {
            home,
            bounds: SourceBounds::default(),
            trees: Trees::default(),
            locks: Vec::new(),
            walls: None,
            seen: Vec::new(),
        })
    }

    /// With no more of the host's disk than this.
    pub(crate) fn within(self, bounds: SourceBounds) -> HostGit {
        HostGit { bounds, ..self }
    }

    /// With no larger trees than these may be.
    pub(crate) fn holding(self, trees: Trees) -> HostGit {
        HostGit { trees, ..self }
    }

    /// Behind these walls, where there are any.
    pub(crate) fn behind(self, walls: Option<GitWalls>) -> HostGit {
        HostGit { walls, ..self }
    }

    /// Seeing this, too, where it is there.
    pub(super) fn seeing(&self, places: &[Place]) -> HostGit {
        let mut git = self.clone();
        git.seen.extend_from_slice(places);
        git
    }

    /// Under this lock, beside those it has.
    pub(super) fn under(&self, lock: &Lock) -> HostGit {
        let mut git = self.clone();
        git.locks.push(lock.shared());
        git
    }

    /// Its version's first two numbers; none where it cannot be told.
    pub(super) async fn version(&self) -> Option<(u32, u32)> {
        let what = "tell its version";
        let args = ["--version".into()];
        let said = self.run(what, Protocols::File, &[], &args).await;
        version(&said.ok()?)
    }

    /// Runs git with these settings and arguments; the end of its stdout.
    pub(super) async fn run(
        &self,
        what: &'static str,
        protocols: Protocols,
        settings: &[(String, String)],
        args: &[OsString],
    ) -> Result<String, GitError> {
        let command = self.command(protocols, settings, args)?;
        finish(what, command, &[], tail).await
    }

    /// Runs git on this host's files alone, with something on its stdin.
    pub(super) async fn feed(
        &self,
        what: &'static str,
        settings: &[(String, String)],
        args: &[OsString],
        input: &[u8],
    ) -> Result<(), GitError> {
        let mut command = self.command(Protocols::File, settings, args)?;
        command.ran.stdin(Stdio::piped());
        finish(what, command, input, tail).await.map(drop)
    }

    /// Runs git on this host's files alone, and gives those of its NUL-ended records that `keep`
    /// wants: at most 64 KiB each, 16 MiB in all.
    pub(super) async fn records(
        &self,
        what: &'static str,
        args: &[OsString],
        keep: fn(&[u8]) -> bool,
    ) -> Result<Vec<Vec<u8>>, GitError> {
        let command = self.command(Protocols::File, &[], args)?;
        let kept = finish(what, command, &[], |out| records(out, keep)).await?;
        kept.ok_or_else(|| GitError::Failed {
            what,
            said: "it lists more than a job may have".to_owned(),
        })
    }

    /// Runs git on this host's files alone, and shows each of its NUL-ended records, as long as it
    /// is asked for more: git ends with the answer no.
    pub(super) async fn each_record(
        &self,
        what: &'static str,
        args: &[OsString],
        mut more: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), GitError> {
        let command = self.command(Protocols::File, &[], args)?;
        let mut ended = false;
        let done = finish(what, command, &[], |out| each(out, &mut more, &mut ended)).await;
        match done {
            // It had more to say.
            Err(GitError::Failed { .. }) if ended => Ok(()),
            done => done,
        }
    }

    fn command(
        &self,
        protocols: Protocols,
        settings: &[(String, String)],
        args: &[OsString],
    ) -> Result<Ready, GitError> {
        let limits = Limits::of(&self.bounds);
        let mut command = match &self.walls {
            Some(walls) => walls.command(&self.home, &self.seen, protocols, limits)?,
            None => limits.command(),
        };
        command.env_clear();
        for name in PROXIES.iter().chain([&OF_JOB]) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let allowed = match protocols {
            Protocols::Http => "http:https",
            Protocols::File => "file",
        };
        command
            .env("PATH", PATH)
            .env("HOME", &self.home)
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            // No object is fetched behind our back, from whatever a repository names.
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_ALLOW_PROTOCOL", allowed)
            // Names in the reflog: the host's user is nobody's business.
            .env("GIT_COMMITTER_NAME", "vk")
            .env("GIT_COMMITTER_EMAIL", "vk@localhost");
        let fixed = [
            ("core.hooksPath", "/dev/null"),
            ("core.fsmonitor", "false"),
            ("transfer.fsckObjects", "true"),
            // Old and harmless, and all over the world's repositories.
            ("fetch.fsck.zeroPaddedFilemode", "ignore"),
            ("fetch.fsck.missingSpaceBeforeDate", "ignore"),
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
            ("submodule.recurse", "false"),
            ("fetch.recurseSubmodules", "false"),
            ("init.defaultBranch", "none"),
            ("advice.detachedHead", "false"),
        ];
        for (name, value) in fixed {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        for (name, value) in Limits::settings() {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        for (name, value) in settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command
            .args(args)
            .current_dir(&self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let locks: Vec<_> = self.locks.iter().filter_map(Shared::get).collect();
        let ran = inherit(command, &locks).map_err(GitError::Start)?;
        Ok(Ready {
            ran,
            locks,
            limits,
            walled: self.walls.is_some(),
        })
    }
}

/// A git that can be started, the locks that it has, its limits, and whether there are walls.
struct Ready {
    ran: Command,
    locks: Vec<Lock>,
    limits: Limits,
    walled: bool,
}

/// Gives a program, and whatever that starts, locks under the numbers that they have here.
fn inherit(mut command: Command, locks: &[Lock]) -> std::io::Result<Command> {
    let files: std::io::Result<Vec<_>> = locks.iter().map(Lock::file).collect();
    command.preserved_fds(files?.into_iter().map(Into::into).collect());
    Ok(command)
}

/// Starts git, and waits for its end: what `read` makes of its stdout, where it ended well.
async fn finish<T, F: Future<Output = T>>(
    what: &'static str,
    Ready {
        mut ran,
        locks,
        limits,
        walled,
    }: Ready,
    input: &[u8],
    read: impl FnOnce(Option<ChildStdout>) -> F,
) -> Result<T, GitError> {
    let mut child = ran.spawn().map_err(GitError::Start)?;
    let mut group = Group::of(&child, locks);
    let (out, err, stdin) = (child.stdout.take(), child.stderr.take(), child.stdin.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // One that does not read it all says why by its end.
            let _ = stdin.write_all(input).await;
        }
    };
    let finished = async {
        let ((), out, err, status) = tokio::join!(feed, read(out), tail(err), child.wait());
        status.map(|status| (status, out, err))
    };
    let finished = timeout(LIMIT, finished).await;
    group.over = matches!(finished, Ok(Ok(_)));
    match finished {
        Ok(Ok((status, out, _))) if status.success() => Ok(out),
        Ok(Ok((status, _, said))) if walled && status.code() == Some(UNWALLED.into()) => {
            Err(GitError::Walls(said))
        }
        Ok(Ok((status, _, said))) if said.trim().is_empty() => {
            Err(limits.failed(what, status.to_string()))
        }
        Ok(Ok((_, _, said))) => Err(limits.failed(what, said)),
        Ok(Err(error)) => Err(GitError::Start(error)),
        Err(_) => Err(GitError::Timeout { what, after: LIMIT }),
    }
}

fn version(said: &str) -> Option<(u32, u32)> {
    let numbers = said.trim().strip_prefix("git version ")?;
    let mut numbers = numbers.split(['.', ' ', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The wanted of NUL-ended records; none where one, or all of them, are too long.
async fn records(out: Option<ChildStdout>, keep: fn(&[u8]) -> bool) -> Option<Vec<Vec<u8>>> {
    let mut kept = Some(Vec::new());
    let mut bytes = 0;
    let Some(mut out) = out else { return kept };
    let (mut record, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    // It is read to its end in any case: git would wait otherwise.
    while let Ok(read @ 1..) = out.read(&mut buffer).await {
        for byte in buffer.get(..read).unwrap_or_default() {
            match byte {
                0 => {
                    let whole = std::mem::take(&mut record);
                    if keep(&whole) {
                        bytes += whole.len() + size_of::<Vec<u8>>();
                        if let Some(kept) = kept.as_mut() {
                            kept.push(whole);
                        }
                    }
                }
                byte if record.len() < SAID_MAX => record.push(*byte),
                _ => kept = None,
            }
        }
        if bytes > RECORDS_MAX {
            kept = None;
        }
    }
    kept
}

/// Shows NUL-ended records until one is the last that is wanted, or is too long to be any.
async fn each(out: Option<ChildStdout>, more: &mut impl FnMut(&[u8]) -> bool, ended: &mut bool) {
    let Some(mut out) = out else { return };
    let (mut record, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(read @ 1..) = out.read(&mut buffer).await {
        for byte in buffer.get(..read).unwrap_or_default() {
            if *byte != 0 && record.len() < SAID_MAX {
                record.push(*byte);
                continue;
            }
            if !more(&record) {
                *ended = true;
                return;
            }
            record.clear();
        }
    }
}

/// A process group that is ended with its owner: git starts others.
struct Group {
    leader: Option<Pid>,
    /// What it works under.
    locks: Vec<Lock>,
    /// Whether its leader has ended, and all that have its streams.
    over: bool,
}

impl Group {
    fn of(child: &tokio::process::Child, locks: Vec<Lock>) -> Group {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        Group {
            leader: pid.and_then(Pid::from_raw),
            locks,
            over: false,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.leader {
            // One that has ended already is no matter.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        if !self.over {
            self.locks.iter().for_each(Lock::leave);
        }
    }
}

/// The last part of what a stream gives, as text.
async fn tail(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        let mut buffer = vec![0; 8192];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            kept.extend_from_slice(buffer.get(..read).unwrap_or_default());
            if kept.len() > 2 * SAID_MAX {
                kept.drain(..kept.len() - SAID_MAX);
            }
        }
    }
    let from = kept.len().saturating_sub(SAID_MAX);
    String::from_utf8_lossy(kept.get(from..).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_are_read() {
        for (said, expected) in [
            ("git version 2.39.5\n", Some((2, 39))),
            ("git version 2.37.1 (Apple Git-137.1)\n", Some((2, 37))),
            ("git version 2.47.0.rc1.windows.1", Some((2, 47))),
            ("git version 3", None),
            ("", None),
        ] {
            assert_eq!(version(said), expected, "{said}");
        }
    }
}
