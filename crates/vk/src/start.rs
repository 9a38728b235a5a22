//! What every command begins and ends with: the version, the log, the runtime, the exit code.

use std::future::Future;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// What `--version` prints after the program's name.
pub(crate) const VERSION: &str = if cfg!(feature = "process-vmm") {
    concat!(
        env!("CARGO_PKG_VERSION"),
        " +process-vmm (for tests: runs jobs without a VM)"
    )
} else {
    env!("CARGO_PKG_VERSION")
};

/// Bytes of a job's process's own log.
const JOB_LOG_MAX: usize = 8 << 20;
/// Its last line where there is more.
const LOG_IS_FULL: &[u8] = b"this log has as much as a job's may have: nothing more is written\n";

/// Begins the log, at `VK_LOG` or warnings, on stderr.
pub(crate) fn log() {
    log_at("warn");
}

/// Begins the log of a job's process: it lies on the node's disk, and what a guest does must not
/// fill that.
pub(crate) fn log_of_job() {
    let left = Mutex::new(Left {
        out: std::io::stderr(),
        bytes: Some(JOB_LOG_MAX),
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter("warn"))
        .with_writer(left)
        .with_ansi(false)
        .init();
}

fn log_at(level: &str) {
    tracing_subscriber::fmt()
        .with_env_filter(filter(level))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_from_env("VK_LOG").unwrap_or_else(|_| EnvFilter::new(level))
}

/// Writes so many bytes, says that there were more, and then nothing.
struct Left<W> {
    out: W,
    /// None once it is full.
    bytes: Option<usize>,
}

impl<W: Write> Write for Left<W> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let left = self.bytes.and_then(|bytes| bytes.checked_sub(line.len()));
        if left.is_some() {
            self.out.write_all(line)?;
        } else if self.bytes.is_some() {
            self.out.write_all(LOG_IS_FULL)?;
        }
        self.bytes = left;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Runs an async command. Only data goes to stdout.
pub(crate) fn run_async<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    log();
    block_on(command)
}

/// The same, of a command whose own words say what warnings would.
pub(crate) fn run_async_quiet<T>(
    command: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    log_at("error");
    block_on(command)
}

fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(command)
}

/// A command's exit code: its own, or 1 and the error with its causes on stderr.
pub(crate) fn exit_code(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        // Whoever read has enough, as with `| head`.
        let is_closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
        if error.downcast_ref().is_some_and(is_closed) {
            return ExitCode::SUCCESS;
        }
        // With nowhere to write to there is nothing left to do.
        let _ = writeln!(std::io::stderr(), "vk: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_who_has_enough_is_no_error() {
        let closed = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let ends = |error: anyhow::Error| format!("{:?}", exit_code(Err(error)));
        let (success, failure) = (ExitCode::SUCCESS, ExitCode::FAILURE);
        assert_eq!(ends(closed().into()), format!("{success:?}"));
        let told = anyhow::Error::from(closed()).context("cannot write to standard output");
        assert_eq!(ends(told), format!("{success:?}"));
        let other = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert_eq!(ends(other.into()), format!("{failure:?}"));
    }

    #[test]
    fn a_jobs_log_ends_with_a_word_where_it_is_full() {
        let mut log = Left {
            out: Vec::new(),
            bytes: Some(10),
        };
        for line in ["1234\n", "5678\n", "never\n", "\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(log.out, [b"1234\n5678\n", LOG_IS_FULL].concat());
    }
}
