//! From a request to a running command.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::sync::Arc;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use vk_guest_proto::{Channel, Exec, Failure, FailureCode, Stdin};

use super::plan::Strings;
use super::tree::Tree;
use super::users::{Identity, MAX_DATABASE, resolve};
use crate::agent::Agent;
use crate::context::{OrFail, code_of, shown};
use crate::root::JobRoot;
use crate::sys::{Launch, Record, launch};

/// A command that runs, and the agent's ends of its pipes.
pub(super) struct Running {
    pub(super) pid: Pid,
    pub(super) tree: Arc<Tree>,
    /// Does not block.
    pub(super) stdin: Option<OwnedFd>,
    pub(super) outputs: Vec<(Channel, OwnedFd)>,
    pub(super) records: OwnedFd,
}

/// Who a specification means in this root.
pub(crate) fn identity(root: &JobRoot, spec: &[u8]) -> Result<Identity, Failure> {
    if spec.is_empty() {
        return Ok(Identity::ROOT);
    }
    let database = |path: &[u8]| match root.read_small(path, MAX_DATABASE) {
        Err(failure) if failure.code == FailureCode::NotFound => Ok(Vec::new()),
        result => result,
    };
    resolve(spec, &database(b"/etc/passwd")?, &database(b"/etc/group")?)
}

/// Starts the command of a stream.
pub(super) fn start(agent: &Agent, stream: u32, exec: &Exec) -> Result<Running, Failure> {
    let root = agent.root()?;
    let strings = Strings::of(exec)?;
    let who = identity(&root, &exec.user)?;
    for directory in &exec.directories {
        let made = root.make_dirs(directory, 0o755, agent.owner(&who));
        // Without its working directory a command cannot begin; of any other it finds out itself.
        if *directory == exec.cwd {
            made?;
        }
    }
    let pipes = Pipes::new(exec)?;
    let (cgroup, procs) = match agent.cgroups() {
        Some(cgroups) => cgroups
            .make(stream)
            .map(|(cgroup, procs)| (Some(cgroup), Some(procs)))?,
        None => (None, None),
    };
    let launched = launch(&Launch {
        programs: &strings.programs,
        argv: &strings.argv,
        env: &strings.env,
        cwd: &strings.cwd,
        umask: exec.umask & 0o777,
        identity: agent
            .becomes(&who)
            .then_some((who.uid, who.gid, &who.groups)),
        not_spared: agent.mode == vk_guest_proto::Mode::Vm,
        mounts: root.mounts(),
        cgroup: procs.as_ref().map(AsFd::as_fd),
        stdin: pipes.stdin.as_fd(),
        stdout: pipes.stdout.as_fd(),
        stderr: pipes.stderr.as_ref().unwrap_or(&pipes.stdout).as_fd(),
    })
    .or_fail(|| {
        format!(
            "start {}",
            shown(exec.argv.first().map_or(b"", |program| program))
        )
    })?;
    agent.child_was_made();
    let pid = match Record::read(&launched.records) {
        Some(Record::Started(pid)) => Pid::from_raw(pid),
        Some(Record::Failed(step, errno)) => return Err(not_started(exec, step, errno)),
        _ => None,
    };
    // A command may be faster at killing its watcher than that is at saying that it began: its end
    // is told next, as for any that does so.
    let pid = pid.unwrap_or(launched.watcher);
    let tree = Arc::new(Tree::new(launched.watcher, pid, cgroup));
    let Pipes { feed, outputs, .. } = pipes;
    Ok(Running {
        pid,
        tree,
        stdin: feed,
        outputs,
        records: launched.records,
    })
}

fn not_started(exec: &Exec, step: &str, errno: i32) -> Failure {
    let errno = Errno::from_raw_os_error(errno);
    let what = exec.argv.first().map_or(b"" as &[u8], |program| program);
    let code = match (step, errno) {
        ("execute the program", Errno::ACCESS | Errno::NOEXEC) => FailureCode::NotExecutable,
        (_, errno) => code_of(errno),
    };
    let on = if step == "enter the working directory" {
        &exec.cwd
    } else {
        what
    };
    let reason = std::io::Error::from(errno);
    Failure::new(code, format!("{step} {}: {reason}", shown(on)))
}

/// A file that has no name, at its begin.
fn in_memory(content: &[u8]) -> std::io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}

/// Both ends of the command's standard input and output.
struct Pipes {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
    feed: Option<OwnedFd>,
    outputs: Vec<(Channel, OwnedFd)>,
}

impl Pipes {
    fn new(exec: &Exec) -> Result<Self, Failure> {
        let what = || "make a command's pipes".to_owned();
        let (stdin, feed) = match &exec.stdin {
            Stdin::Stream => {
                let (stdin, feed) = pipe_with(PipeFlags::CLOEXEC).or_fail(what)?;
                rustix::io::ioctl_fionbio(&feed, true).or_fail(what)?;
                (stdin, Some(feed))
            }
            Stdin::File { content } => {
                let file = in_memory(content).or_fail(|| "make a command's input".into())?;
                (file, None)
            }
            Stdin::Null => {
                let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
                (null.or_fail(|| "open /dev/null".into())?, None)
            }
        };
        let (out, stdout) = pipe_with(PipeFlags::CLOEXEC).or_fail(what)?;
        let mut outputs = vec![(Channel::Stdout, out)];
        let stderr = if exec.merge_output {
            None
        } else {
            let (err, stderr) = pipe_with(PipeFlags::CLOEXEC).or_fail(what)?;
            outputs.push((Channel::Stderr, err));
            Some(stderr)
        };
        Ok(Self {
            stdin,
            stdout,
            stderr,
            feed,
            outputs,
        })
    }
}
