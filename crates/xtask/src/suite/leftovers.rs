//! Processes that a test program left behind.
//!
//! Under a user of their own, every process of that user is one. Under the caller's own user, those
//! are whose environment carries the run's mark, or whose program lies in the test root.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// How long processes that are on their way out may take.
const GRACE: Duration = Duration::from_secs(2);

/// The variable that marks a run's processes.
pub(super) const MARK: &str = "VK_TEST_RUN";

/// Whose processes are looked for.
#[derive(Debug, Clone)]
pub(super) enum Whose {
    /// All of this user.
    User(u32),
    /// Those with this mark, or from this folder.
    Marked { mark: String, root: PathBuf },
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
pub(super) fn sweep(whose: &Whose) -> Result<Vec<Leftover>> {
    let deadline = Instant::now() + GRACE;
    let mut found = list(whose)?;
    while !found.is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
        found = list(whose)?;
    }
    for leftover in &found {
        if let Some(pid) = Pid::from_raw(leftover.pid) {
            // It may have gone by itself since; that is what was wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    Ok(found)
}

/// The processes there are now, zombies and the caller left out.
pub(super) fn list(whose: &Whose) -> Result<Vec<Leftover>> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("listing /proc")? {
        let entry = entry.context("listing /proc")?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if pid != own && is_of(&entry.path(), whose) {
            found.push(Leftover {
                pid,
                command: command(&entry.path()),
            });
        }
    }
    Ok(found)
}

/// A process that ends meanwhile cannot be read and is none.
fn is_of(dir: &Path, whose: &Whose) -> bool {
    let Ok(status) = fs::read_to_string(dir.join("status")) else {
        return false;
    };
    if field(&status, "State").is_none_or(|state| state.starts_with(['Z', 'X'])) {
        return false;
    }
    match whose {
        Whose::User(uid) => {
            let uids = field(&status, "Uid").unwrap_or_default();
            uids.split_whitespace().any(|word| word.parse() == Ok(*uid))
        }
        Whose::Marked { mark, root } => {
            let wanted = format!("{MARK}={mark}");
            let environ = fs::read(dir.join("environ")).unwrap_or_default();
            let marked = environ
                .split(|byte| *byte == 0)
                .any(|pair| pair == wanted.as_bytes());
            marked || fs::read_link(dir.join("exe")).is_ok_and(|exe| exe.starts_with(root))
        }
    }
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
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_marked_process_is_found_killed_and_named() {
        let mark = format!("leftover-{}", std::process::id());
        let whose = Whose::Marked {
            mark: mark.clone(),
            root: "/nonexistent".into(),
        };
        assert_eq!(list(&whose).unwrap(), []);
        let mut child = Command::new("sleep")
            .arg("61")
            .env(MARK, &mark)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let found = sweep(&whose).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].command, "sleep 61");
        assert!(!child.wait().unwrap().success(), "it was killed");
        assert_eq!(list(&whose).unwrap(), []);
    }

    #[test]
    fn fields_of_a_status_are_read() {
        let status = "Name:\tsleep\nState:\tS (sleeping)\nUid:\t1000\t1000\t1000\t1000\n";
        assert_eq!(field(status, "Uid"), Some("1000\t1000\t1000\t1000"));
        assert_eq!(field(status, "State"), Some("S (sleeping)"));
        assert_eq!(field(status, "Gid"), None);
    }
}
