//! The keeper: a process between `vk-lab run` and all it starts. It holds the private directory and
//! every program; when its standard input ends, whatever ended the other side of it, it kills what
//! is left, removes the directory and ends.
//!
//! It is told what to do and tells what it sees, a JSON line each.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::signal::unix::{SignalKind, signal};

use super::descendants;

/// How long killed processes may take to be gone.
const LIMIT: Duration = Duration::from_secs(20);

/// What the keeper is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(super) enum Order {
    /// Start a program; what it says goes to the end of a file.
    Start {
        /// What it is called in events.
        name: String,
        /// The program.
        program: PathBuf,
        /// Its arguments; never a secret, since anyone can read them.
        arguments: Vec<String>,
        /// Where what it says goes.
        log: PathBuf,
    },
    /// Ask a program to end.
    Stop {
        /// Which.
        name: String,
    },
}

/// What the keeper tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// The private directory is there.
    Ready {
        /// Where.
        dir: PathBuf,
    },
    /// A program could not be started.
    Failed {
        /// Which.
        name: String,
        /// Why.
        why: String,
    },
    /// A program ended.
    Ended {
        /// Which.
        name: String,
        /// Its exit code; above 128, the signal's number is added to that.
        code: i32,
    },
    /// All is over.
    Over {
        /// What could not be ended or removed.
        left: Option<String>,
    },
}

/// Runs the keeper in a directory below `parent`, until its standard input ends.
///
/// # Errors
///
/// What it needs of the system is not there.
pub(crate) fn keep(parent: &Path) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    descendants::adopt()?;
    let dir = tempfile::Builder::new()
        .prefix("vk-lab-")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(parent)?
        .keep();
    say(&Event::Ready { dir: dir.clone() });
    let served = runtime.block_on(serve());
    let gone = descendants::end_all(LIMIT);
    let removed = remove(&dir);
    let left = match (&gone, &removed) {
        (Ok(true), Ok(())) => None,
        (Ok(false), _) => Some("processes that do not end".to_owned()),
        (Err(error), _) | (_, Err(error)) => Some(format!("{}: {error}", dir.display())),
    };
    say(&Event::Over { left });
    // The runtime's thread that reads the standard input needs no end of its own.
    runtime.shutdown_background();
    served
}

/// The other side may have gone: then nobody listens.
fn say(event: &Event) {
    let Ok(text) = serde_json::to_string(event) else {
        return;
    };
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

async fn serve() -> io::Result<()> {
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let mut children = signal(SignalKind::child())?;
    // Only the end of its standard input ends the keeper: what the user stops ends in its own order.
    let mut ignored = Vec::new();
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        ignored.push(signal(kind)?);
    }
    let mut running: BTreeMap<i32, String> = BTreeMap::new();
    loop {
        tokio::select! {
            line = orders.next_line() => match line? {
                Some(line) => perform(&line, &mut running),
                None => return Ok(()),
            },
            _ = children.recv() => {}
        }
        for ended in descendants::reap() {
            if let Some(name) = running.remove(&ended.pid) {
                let code = ended.code;
                say(&Event::Ended { name, code });
            }
        }
    }
}

fn perform(line: &str, running: &mut BTreeMap<i32, String>) {
    match serde_json::from_str(line) {
        Ok(Order::Start {
            name,
            program,
            arguments,
            log,
        }) => match start(&program, &arguments, &log) {
            Ok(pid) => drop(running.insert(pid, name)),
            Err(error) => {
                let why = format!("cannot start {}: {error}", program.display());
                say(&Event::Failed { name, why });
            }
        },
        Ok(Order::Stop { name }) => {
            let named = running.iter().filter(|(_, known)| **known == name);
            for pid in named.filter_map(|(pid, _)| Pid::from_raw(*pid)) {
                // One that has just ended is told as ended.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        Err(error) => {
            let why = format!("the order cannot be read: {error}");
            say(&Event::Failed {
                name: String::new(),
                why,
            });
        }
    }
}

fn start(program: &Path, arguments: &[String], log: &Path) -> io::Result<i32> {
    let out: File = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(log)?;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        // What the terminal sends to the user's command is not for these.
        .process_group(0)
        .spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// Removes a directory, also where a job's files in it are closed to their owner.
fn remove(dir: &Path) -> io::Result<()> {
    let first = fs::remove_dir_all(dir);
    match first {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_folders(dir, 0);
            fs::remove_dir_all(dir)
        }
        other => other,
    }
}

/// Folders at most so deep are opened; a path holds no more.
const DEEPEST: usize = 2_048;

fn open_folders(dir: &Path, depth: usize) {
    // What cannot be opened is told by the removal that follows.
    let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    let folders = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    for entry in folders {
        if depth < DEEPEST {
            open_folders(&entry.path(), depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_are_closed_are_removed_too() {
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("run/closed/deeper");
        fs::create_dir_all(&closed).unwrap();
        fs::write(closed.join("file"), "").unwrap();
        for folder in [closed.as_path(), closed.parent().unwrap()] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove(&dir.path().join("run")).unwrap();
        assert!(!dir.path().join("run").exists());
    }

    #[test]
    fn orders_and_events_read_back_as_written() {
        let order = Order::Stop { name: "hub".into() };
        let text = serde_json::to_string(&order).unwrap();
        assert_eq!(text, r#"{"order":"stop","name":"hub"}"#);
        assert_eq!(serde_json::from_str::<Order>(&text).unwrap(), order);
        let event = Event::Ended {
            name: "hub".into(),
            code: 137,
        };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }
}
