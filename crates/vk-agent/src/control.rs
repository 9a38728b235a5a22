//! The control stream: hello, requests, answers, the end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use vk_guest_proto::limits::MAX_SMALL_FILE;
use vk_guest_proto::{
    Answer, CONTROL_STREAM, ControlToAgent, ControlToHost, Failure, FailureCode, FileInfo,
    FileKind, Hello, Mode, Op, Purpose, Scope, SetUp,
};

use crate::agent::{Agent, Setup};
use crate::conn::{Gone, Incoming, Outgoing};
use crate::context::{OrFail, fail, shown};
use crate::exec::users::Identity;
use crate::root::JobRoot;
use crate::usage::{memory_kib, of_machine, of_process, uptime_ms};
use crate::{mounts, stream};

/// Most requests that may wait for their answers.
const MAX_PENDING: usize = 256;

/// Why the agent's work is over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The host asked for it.
    PowerOff,
    /// The host is gone, or speaks nonsense; the reason.
    HostGone(String),
}

/// Dials the host and does as it asks until it asks no more. Every command is killed then.
///
/// # Errors
/// The host cannot be reached, or the agent cannot be set up here.
pub(crate) fn run(setup: Setup) -> Result<Over, Failure> {
    let agent = Arc::new(Agent::new(setup)?);
    let conn = agent.dial(Purpose::Control, CONTROL_STREAM)?;
    crate::fault::report_on(conn.clone());
    let mut incoming = Incoming::<ControlToAgent>::new(conn.clone());
    let control = Arc::new(Control {
        agent: Arc::clone(&agent),
        out: Mutex::new(Outgoing::new(conn.clone())),
        pending: AtomicUsize::new(0),
    });
    control.say(&ControlToHost::Hello {
        hello: hello(agent.mode),
    });
    let over = control.serve(&mut incoming);
    agent.kill_everything();
    if over == Over::PowerOff {
        control.say(&ControlToHost::Bye);
        conn.linger();
    }
    Ok(over)
}

fn hello(mode: Mode) -> Hello {
    let uname = rustix::system::uname();
    Hello {
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        mode,
        kernel_release: shown(uname.release().to_bytes()).into_owned(),
        uptime_ms: uptime_ms(),
        memory_kib: memory_kib(),
        cpus: processors(),
    }
}

/// Processors that this process may run on. The library's own count reads files of control groups too.
fn processors() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1))
}

struct Control {
    agent: Arc<Agent>,
    out: Mutex<Outgoing>,
    pending: AtomicUsize,
}

impl Control {
    /// Sends a frame; that the host is gone is seen by the reader.
    fn say(&self, frame: &ControlToHost) {
        let _ = self
            .out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(frame);
    }

    fn serve(self: &Arc<Self>, incoming: &mut Incoming<ControlToAgent>) -> Over {
        loop {
            match incoming.next() {
                Ok(ControlToAgent::Request {
                    id,
                    op: Op::PowerOff,
                }) => {
                    self.answer(id, Ok(Answer::Done));
                    return Over::PowerOff;
                }
                // A guest without a root can do nothing else yet, and a thread for it takes its time.
                Ok(ControlToAgent::Request {
                    id,
                    op: Op::SetUp { plan },
                }) => self.answer(id, set_up(&self.agent, &plan)),
                Ok(ControlToAgent::Request { id, op }) => self.take(id, op),
                Err(gone @ (Gone::Closed | Gone::Unreadable(_))) => {
                    return Over::HostGone(gone.to_string());
                }
            }
        }
    }

    fn answer(&self, id: u32, result: Result<Answer, Failure>) {
        let answer = result.unwrap_or_else(|failure| Answer::Failed { failure });
        self.say(&ControlToHost::Answer { id, answer });
    }

    /// Does what cannot wait at once, and what may take its time on a thread of its own.
    fn take(self: &Arc<Self>, id: u32, op: Op) {
        if let Some(result) = self.at_once(&op) {
            return self.answer(id, result);
        }
        if self.pending.fetch_add(1, Ordering::SeqCst) >= MAX_PENDING {
            self.pending.fetch_sub(1, Ordering::SeqCst);
            return self.answer(
                id,
                fail(FailureCode::TooLarge, "too many requests wait already"),
            );
        }
        let control = Arc::clone(self);
        let spawned = std::thread::Builder::new()
            .name(format!("request-{id}"))
            .spawn(move || {
                let result = control.in_time(op);
                control.answer(id, result);
                control.pending.fetch_sub(1, Ordering::SeqCst);
            });
        if let Err(error) = spawned {
            self.pending.fetch_sub(1, Ordering::SeqCst);
            self.answer(id, Err(error).or_fail(|| "start a thread".into()));
        }
    }

    fn at_once(&self, op: &Op) -> Option<Result<Answer, Failure>> {
        match op {
            Op::Ping => Some(Ok(Answer::Done)),
            Op::Signal {
                stream,
                signal,
                scope,
            } => Some(self.signal(*stream, *signal, *scope).map(|()| Answer::Done)),
            Op::Kill { stream, grace_ms } => {
                Some(self.kill(*stream, *grace_ms).map(|()| Answer::Done))
            }
            _ => None,
        }
    }

    fn in_time(&self, op: Op) -> Result<Answer, Failure> {
        let agent = &self.agent;
        match op {
            Op::Open { stream, purpose } => stream::open(agent, purpose, stream)?,
            Op::MountRoot { plan } => mounts::mount_root(agent, &plan)?,
            Op::MountTree { plan } => mounts::mount_tree(agent, &plan)?,
            Op::Stat { paths, follow } => {
                let root = agent.root()?;
                let files = paths.iter().map(|path| root.stat(path, follow));
                return Ok(Answer::Stats {
                    files: files.collect::<Result<_, _>>()?,
                });
            }
            Op::Usage => {
                let root = agent.root().ok();
                let writable = root.as_ref().and_then(|root| root.writable());
                let usage = match agent.mode {
                    Mode::Vm => of_machine(&agent.peak, writable),
                    Mode::Process => of_process(writable),
                };
                return Ok(Answer::Usage { usage });
            }
            Op::Sync => rustix::fs::sync(),
            Op::Ping | Op::Signal { .. } | Op::Kill { .. } | Op::SetUp { .. } | Op::PowerOff => {
                return fail(FailureCode::Internal, "a request on the wrong path");
            }
        }
        Ok(Answer::Done)
    }

    fn signal(&self, stream: u32, signal: u8, scope: Scope) -> Result<(), Failure> {
        let Some(signal) = Signal::from_named_raw(signal.into()) else {
            return fail(FailureCode::Invalid, format!("there is no signal {signal}"));
        };
        self.agent.exec(stream)?.signal(signal, scope)
    }

    /// SIGTERM now, SIGKILL after the grace time for what is left.
    fn kill(&self, stream: u32, grace_ms: u32) -> Result<(), Failure> {
        let tree = self.agent.exec(stream)?;
        let grace = Duration::from_millis(grace_ms.into());
        if !grace.is_zero() {
            tree.signal(Signal::TERM, Scope::Tree)?;
        }
        std::thread::Builder::new()
            .name(format!("kill-{stream}"))
            .spawn(move || {
                std::thread::sleep(grace);
                tree.kill_all()
            })
            .or_fail(|| "start a thread".into())?;
        Ok(())
    }
}

/// All of a set-up, in the order in which a part may need those before it.
fn set_up(agent: &Agent, plan: &SetUp) -> Result<Answer, Failure> {
    if let Some(unix_ns) = plan.unix_ns {
        set_clock(agent.mode, unix_ns)?;
    }
    if let Some(name) = &plan.hostname {
        set_hostname(agent.mode, name)?;
    }
    mounts::mount_root(agent, &plan.root)?;
    let root = agent.root()?;
    plan.open
        .iter()
        .try_for_each(|path| root.make_open(path, agent.owner(&Identity::ROOT)))?;
    let files = look(&root, &plan.look)?;
    // Whoever asked finds out by itself why not.
    let most = u64::try_from(MAX_SMALL_FILE).unwrap_or(u64::MAX);
    let content = root.read_small(&plan.read, most).ok();
    Ok(Answer::SetUp { files, content })
}

/// What the paths are, up to the first program; what is behind it counts as not there.
fn look(root: &JobRoot, paths: &[Vec<u8>]) -> Result<Vec<Option<FileInfo>>, Failure> {
    let is_program = |info: &FileInfo| info.kind == FileKind::File && info.mode & 0o111 != 0;
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let info = root.stat(path, true)?;
        let found = info.as_ref().is_some_and(is_program);
        files.push(info);
        if found {
            break;
        }
    }
    files.resize(paths.len(), None);
    Ok(files)
}

/// A machine's name and clock are its own; a process among others has the host's.
fn of_machine_only(mode: Mode, what: &str) -> Result<(), Failure> {
    match mode {
        Mode::Vm => Ok(()),
        Mode::Process => fail(
            FailureCode::Unsupported,
            format!("{what}: the agent is no machine's init"),
        ),
    }
}

fn set_hostname(mode: Mode, name: &str) -> Result<(), Failure> {
    of_machine_only(mode, "name the machine")?;
    rustix::system::sethostname(name.as_bytes()).or_fail(|| format!("name the machine {name}"))
}

fn set_clock(mode: Mode, unix_ns: u64) -> Result<(), Failure> {
    of_machine_only(mode, "set the clock")?;
    let (seconds, nanos) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000);
    let time = rustix::time::Timespec {
        tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos).unwrap_or(0),
    };
    rustix::time::clock_settime(rustix::time::ClockId::Realtime, time)
        .or_fail(|| "set the clock".into())
}
