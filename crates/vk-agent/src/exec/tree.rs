//! All processes of one command: its descendants, found in `/proc` below its watcher.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process};
use vk_guest_proto::{ExitStatus, Failure, FailureCode, Scope};

use super::cgroup::Cgroup;
use crate::context::{OrFail, fail};

/// Rounds of killing: a process may fork between the look and the kill. Each round takes all that
/// are there, so only a fork bomb without a cgroup outlives the first few.
const KILL_ROUNDS: u32 = 400;
/// Pause between two rounds.
const ROUND: Duration = Duration::from_millis(5);

/// The processes of a running command.
#[derive(Debug)]
pub(crate) struct Tree {
    watcher: Pid,
    leader: Pid,
    cgroup: Option<Cgroup>,
    leader_ended: AtomicBool,
}

impl Tree {
    pub(crate) fn new(watcher: Pid, leader: Pid, cgroup: Option<Cgroup>) -> Self {
        Self {
            watcher,
            leader,
            cgroup,
            leader_ended: AtomicBool::new(false),
        }
    }

    /// Says that the command's own process is gone, and its number may be another's.
    pub(crate) fn leader_has_ended(&self) {
        self.leader_ended.store(true, Ordering::SeqCst);
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal, scope: Scope) -> Result<(), Failure> {
        match scope {
            Scope::Leader if self.leader_ended.load(Ordering::SeqCst) => {
                fail(FailureCode::NotFound, "the command's own process has ended")
            }
            Scope::Leader => kill_process(self.leader, signal)
                .or_fail(|| format!("signal the command's process {}", self.leader)),
            Scope::Tree => {
                send(signal, &self.members());
                Ok(())
            }
        }
    }

    /// Kills all there is and waits until it is gone; gives how many there were at first.
    pub(crate) fn kill_all(&self) -> usize {
        let kill = |left: &HashSet<Pid>| {
            if !self.cgroup.as_ref().is_some_and(Cgroup::kill) {
                send(Signal::KILL, left);
            }
        };
        until_none(|| self.members(), kill)
    }

    /// Kills what a watcher that was killed left; before [`Tree::leader_has_ended`]. What had left
    /// the command's own process is found by its control group alone.
    pub(crate) fn kill_orphans(&self) {
        if self.cgroup.as_ref().is_some_and(Cgroup::kill) {
            return;
        }
        let orphans = || {
            let mut left = below(&processes(), self.leader);
            // A number is another's only after all others had their turn.
            if processes()
                .get(&self.leader)
                .is_some_and(|leader| !leader.ended)
            {
                left.insert(self.leader);
            }
            left
        };
        until_none(orphans, |left| send(Signal::KILL, left));
    }

    /// Whether the watcher has no child, or is gone as it goes when it has none: the usual end, told
    /// without a look at every process there is.
    fn is_surely_empty(&self) -> bool {
        let children = format!("task/{}/children", self.watcher.as_raw_nonzero());
        is_empty_or_gone(self.watcher, &children)
    }

    /// Every process below the watcher that has not ended.
    pub(crate) fn members(&self) -> HashSet<Pid> {
        if self.is_surely_empty() {
            return HashSet::new();
        }
        let all = processes();
        // The watcher may be gone, and its number another's.
        let watcher = all.get(&self.watcher);
        if watcher.is_some_and(|watcher| watcher.parent == Some(getpid())) {
            below(&all, self.watcher)
        } else {
            HashSet::new()
        }
    }
}

/// Whether a file in `/proc` of a process is there and empty, or the process is gone.
fn is_empty_or_gone(pid: Pid, file: &str) -> bool {
    let pid = pid.as_raw_nonzero();
    match std::fs::read(format!("/proc/{pid}/{file}")) {
        Ok(content) => content.is_empty(),
        Err(_) => !std::path::Path::new(&format!("/proc/{pid}")).exists(),
    }
}

/// Kills every process below this one: what commands left running too.
pub(crate) fn kill_descendants() {
    until_none(
        || below(&processes(), getpid()),
        |left| send(Signal::KILL, left),
    );
}

/// Kills until none is left; gives how many there were at first.
fn until_none(look: impl Fn() -> HashSet<Pid>, kill: impl Fn(&HashSet<Pid>)) -> usize {
    let mut left = look();
    let first = left.len();
    for _ in 0..KILL_ROUNDS {
        if left.is_empty() {
            break;
        }
        kill(&left);
        sleep(ROUND);
        left = look();
    }
    first
}

/// Every process that descends from one and has not ended.
fn below(all: &HashMap<Pid, Process>, ancestor: Pid) -> HashSet<Pid> {
    let mut found = HashSet::new();
    let mut parents = HashSet::from([ancestor]);
    while !parents.is_empty() {
        let children = all.iter().filter(|(pid, process)| {
            process
                .parent
                .is_some_and(|parent| parents.contains(&parent))
                && !found.contains(*pid)
        });
        let children: HashSet<Pid> = children.map(|(pid, _)| *pid).collect();
        found.extend(children.iter().copied());
        parents = children;
    }
    found.retain(|pid| all.get(pid).is_some_and(|process| !process.ended));
    found
}

fn send(signal: Signal, pids: &HashSet<Pid>) {
    for pid in pids {
        // An error means that it ended meanwhile.
        let _ = kill_process(*pid, signal);
    }
}

struct Process {
    parent: Option<Pid>,
    ended: bool,
}

/// Every process in `/proc`.
fn processes() -> HashMap<Pid, Process> {
    let Ok(dir) = std::fs::read_dir("/proc") else {
        return HashMap::new();
    };
    dir.flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read(entry.path().join("stat")).ok()?;
            Some((Pid::from_raw(pid)?, parse_stat(&stat)?))
        })
        .collect()
}

/// State and parent from `/proc/<pid>/stat`; the name before them may hold anything.
fn parse_stat(stat: &[u8]) -> Option<Process> {
    let end_of_name = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(stat.get(end_of_name..)?).ok()?;
    let mut fields = rest.split(' ').skip(1);
    let state = fields.next()?;
    let parent: i32 = fields.next()?.parse().ok()?;
    Some(Process {
        parent: Pid::from_raw(parent),
        ended: matches!(state, "Z" | "X"),
    })
}

/// A wait status as the protocol has it.
pub(crate) fn exit_status(raw: i32) -> ExitStatus {
    let byte = |n: i32| u8::try_from(n).unwrap_or(u8::MAX);
    match raw & 0x7f {
        0 => ExitStatus::Code {
            code: byte((raw >> 8) & 0xff),
        },
        signal => ExitStatus::Signal {
            signal: byte(signal),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_hide_the_parent() {
        let found = parse_stat(b"42 (a) S 1 (b)) Z 7 42 42 0 -1").unwrap();
        assert_eq!((found.parent, found.ended), (Pid::from_raw(7), true));
        assert!(parse_stat(b"42 (a").is_none());
        assert!(parse_stat(b"").is_none());
    }

    #[test]
    fn wait_statuses_are_codes_or_signals() {
        assert_eq!(exit_status(3 << 8), ExitStatus::Code { code: 3 });
        assert_eq!(exit_status(9), ExitStatus::Signal { signal: 9 });
        assert_eq!(exit_status(0x8b), ExitStatus::Signal { signal: 11 });
    }
}
