//! Processes that a test program left behind: whatever descends from this process once the program
//! itself has ended. Orphans come to this process, so a program that detaches is found too, whatever
//! its user, session, environment or namespaces; and no other process of the user is touched.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

/// How long processes that are on their way out may take.
const GRACE: Duration = Duration::from_secs(2);

/// From now on, descendants whose parent ends become children of this process.
pub(super) fn adopt_orphans() -> Result<()> {
    set_child_subreaper(Some(getpid())).context("asking the kernel for orphaned processes")
}

/// A process that should be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leftover {
    pub(super) pid: i32,
    /// Its command line, or its name where that is empty.
    pub(super) command: String,
}

/// Waits until nothing is left, at most for the grace time; what is still there then is killed and
/// given back.
pub(super) fn sweep() -> Result<Vec<Leftover>> {
    let own = getpid().as_raw_nonzero().get();
    let deadline = Instant::now() + GRACE;
    let mut found = below(own)?;
    while !found.is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
        found = below(own)?;
    }
    for leftover in &found {
        if let Some(pid) = Pid::from_raw(leftover.pid) {
            // It may have gone by itself since; that is what was wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    Ok(found)
}

/// The living descendants of a process, zombies left out.
fn below(ancestor: i32) -> Result<Vec<Leftover>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let mut alive = Vec::new();
    for entry in fs::read_dir("/proc").context("listing /proc")? {
        let entry = entry.context("listing /proc")?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A process that ends meanwhile cannot be read and is none.
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else {
            continue;
        };
        let Some(parent) = field(&status, "PPid").and_then(|word| word.parse().ok()) else {
            continue;
        };
        children.entry(parent).or_default().push(pid);
        if field(&status, "State").is_some_and(|state| !state.starts_with(['Z', 'X'])) {
            alive.push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![ancestor];
    while let Some(parent) = open.pop() {
        let of_parent = children.remove(&parent).unwrap_or_default();
        found.extend(of_parent.iter().copied().filter(|pid| alive.contains(pid)));
        open.extend(of_parent);
    }
    let leftover = |pid| Leftover {
        pid,
        command: command(&proc_folder(pid)),
    };
    Ok(found.into_iter().map(leftover).collect())
}

fn proc_folder(pid: i32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    lines
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.trim())
}

fn command(dir: &Path) -> String {
    let line = fs::read(dir.join("cmdline")).unwrap_or_default();
    let words: Vec<_> = line
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy)
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        let name = fs::read_to_string(dir.join("comm")).unwrap_or_default();
        return name.trim().to_owned();
    }
    words.join(" ").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::suite::alone;

    #[test]
    fn a_process_that_detached_is_found_killed_and_named() {
        let _alone = alone();
        adopt_orphans().unwrap();
        assert_eq!(sweep().unwrap(), []);
        let script = "env -i setsid sleep 61 >/dev/null 2>&1 & echo $!";
        let output = Command::new("sh").args(["-c", script]).output().unwrap();
        let pid = String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .unwrap();
        let found = sweep().unwrap();
        assert_eq!(
            found,
            [Leftover {
                pid,
                command: "sleep 61".to_owned()
            }]
        );
        assert_eq!(sweep().unwrap(), [], "it was killed");
    }

    #[test]
    fn what_descends_from_another_is_none() {
        let _alone = alone();
        let mut other = Command::new("sleep").arg("63").spawn().unwrap();
        let pid = i32::try_from(other.id()).unwrap();
        assert_eq!(below(pid).unwrap(), []);
        let ours = below(getpid().as_raw_nonzero().get()).unwrap();
        assert!(ours.iter().any(|leftover| leftover.pid == pid), "{ours:?}");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn fields_of_a_status_are_read() {
        let status = "Name:\tsleep\nState:\tS (sleeping)\nPPid:\t1000\n";
        assert_eq!(field(status, "PPid"), Some("1000"));
        assert_eq!(field(status, "State"), Some("S (sleeping)"));
        assert_eq!(field(status, "Gid"), None);
    }
}
