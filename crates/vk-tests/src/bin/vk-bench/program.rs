//! Programs that run beside the bench: their logs in files, ended with it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// How long anything may take: that something hangs is what it tells, not that the machine is slow.
const PATIENCE: Duration = Duration::from_secs(600);

/// A program that runs until it is dropped.
pub(crate) struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts it; what it says goes into `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Program> {
        let file = File::create(log).with_context(|| format!("making {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        let log = log.to_owned();
        Ok(Program { child, log })
    }

    /// What it said so far, while it runs.
    pub(crate) fn log(&mut self) -> anyhow::Result<String> {
        let text = std::fs::read_to_string(&self.log)?;
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended ({status}): {text}", self.log.display());
        }
        Ok(text)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end; what it printed.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}\n{out}{said}", output.status);
    }
    Ok(out)
}

/// Asks again until there is an answer.
pub(crate) fn eventually<T>(
    what: &str,
    mut ask: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > end {
            bail!("not within {PATIENCE:?}: {what}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
