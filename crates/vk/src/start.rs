//! What every command begins and ends with: the version, the log, the runtime, the exit code.

use std::future::Future;
use std::io::IsTerminal;
use std::process::ExitCode;

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

/// Begins the log, at `VK_LOG` or warnings, on stderr.
pub(crate) fn log() {
    log_at("warn");
}

fn log_at(level: &str) {
    let filter = EnvFilter::try_from_env("VK_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
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
        // With nowhere to write to there is nothing left to do.
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("vk: {error:#}\n"));
        ExitCode::FAILURE
    })
}
