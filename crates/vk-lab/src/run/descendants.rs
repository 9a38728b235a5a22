//! What descends from a process, and its end. Orphans come to a process that adopts them, so that
//! nothing it ever started gets out of its sight, whatever its session or namespaces.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// A pause between two looks at processes that are about to end.
const PAUSE: Duration = Duration::from_millis(10);

/// From now on, descendants whose parent ends become children of this process.
pub(super) fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// A child that ended, and how: an exit code, or 128 and the signal's number as shells have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reaped {
    pub(super) pid: i32,
    pub(super) code: i32,
}

/// Takes up children that have ended, adopted ones too. It waits for none.
pub(super) fn reap() -> Vec<Reaped> {
    let mut reaped = Vec::new();
    // No child, or none that has ended: both are the end of the list.
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        let killed = status.terminating_signal().map(|signal| 128 + signal);
        reaped.push(Reaped {
            pid: pid.as_raw_nonzero().get(),
            code: status.exit_status().or(killed).unwrap_or(-1),
        });
    }
    reaped
}

/// Ends every descendant of this process and takes it up. Whether all are gone by the limit.
pub(super) fn end_all(limit: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        let _ = reap();
        let left = of(getpid().as_raw_nonzero().get())?;
        if left.is_empty() {
            return Ok(true);
        }
        for pid in left.into_iter().filter_map(Pid::from_raw) {
            // It may have gone by itself since; that is what was wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The living descendants of a process.
fn of(ancestor: i32) -> io::Result<Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process that ends meanwhile cannot be read and is none.
        let Some(parent) = living_parent(pid) else {
            continue;
        };
        children.entry(parent).or_default().push(pid);
    }
    let (mut found, mut open) = (Vec::new(), vec![ancestor]);
    while let Some(parent) = open.pop() {
        let list = children.remove(&parent).unwrap_or_default();
        found.extend(&list);
        open.extend(list);
    }
    Ok(found)
}

/// A process's parent; none of one that has ended and is yet to be taken up.
fn living_parent(pid: i32) -> Option<i32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name, in parentheses, may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then_some(())?;
    fields.next()?.parse().ok()
}
