//! Programs that the test starts, with their logs in files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take here, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// What is shown of a log, in bytes.
const SHOWN: usize = 4_000;

/// One that runs until the test ends.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    pub(crate) fn start(command: &mut Command, log: &Path) -> Program {
        let file = File::create(log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let log = log.to_owned();
        Program { child, log }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// That it has not ended.
    pub(crate) fn runs(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "ended with {ended:?}: {}", self.last());
    }

    /// The end of what it has said.
    pub(crate) fn last(&self) -> String {
        let log = self.log();
        let from = log.len().saturating_sub(SHOWN);
        String::from_utf8_lossy(&log.as_bytes()[from..]).into_owned()
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::TERM).unwrap();
        eventually("it ends", || self.child.try_wait().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end; what it wrote.
pub(crate) fn run(command: &mut Command) -> String {
    let ran = command.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{command:?}: {}: {said}", ran.status);
    String::from_utf8(ran.stdout).unwrap()
}

/// Asks again until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
