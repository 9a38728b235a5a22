//! Programs started by a test: their logs in files, killed at its end.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take here, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A program that runs until the test ends.
pub(crate) struct Program {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts it; what it says goes to the end of `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let file = File::options().append(true).create(true).open(log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let log = log.to_owned();
        Self { child, log }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What it said so far, and that it still runs.
    pub(crate) fn log(&mut self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "{} ended: {text}", self.log.display());
        text
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end; what it wrote to stdout.
pub(crate) fn run(command: &mut Command) -> String {
    run_with(command, Stdio::null())
}

/// The same, of a program that reads something.
pub(crate) fn run_with(command: &mut Command, input: impl Into<Stdio>) -> String {
    let ran = command.stdin(input).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{command:?}: {}: {said}", ran.status);
    String::from_utf8(ran.stdout).unwrap()
}

/// Asks again until there is an answer; panics with `what` after a time.
pub(crate) fn eventually<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, what, ask)
}

/// Waits until a program's Unix socket takes connections: its file is there a moment before.
pub(crate) fn answers(program: &mut Program, socket: &Path) {
    eventually(&format!("{} answers", socket.display()), || {
        program.log();
        UnixStream::connect(socket).ok()
    });
}

/// The same within a time of one's own.
pub(crate) fn eventually_within<T>(
    limit: Duration,
    what: &str,
    mut ask: impl FnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes whose command line names something in a directory.
pub(crate) fn processes_of(directory: &Path) -> Vec<(u32, String)> {
    let name = directory.to_str().unwrap();
    let entries = std::fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(name).then_some((pid, line))
        })
        .collect()
}

pub(crate) fn kill(pid: u32) {
    if let Some(pid) = Pid::from_raw(i32::try_from(pid).unwrap()) {
        // It may have gone by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
}
