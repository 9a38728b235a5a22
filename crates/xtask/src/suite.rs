//! The staged test run. `stage` builds with cargo and lays programs, tests and fixtures out in a
//! folder that an ordinary user can read; `test` runs the tests from there, without cargo, as that
//! user, each program with a time limit and a folder of its own, and counts.
//!
//! The folder (`VK_TEST_ROOT`):
//!
//! | path | what |
//! |---|---|
//! | `bin/` | our programs as they ship, and the tools they start |
//! | `bin-process/` | the same, with the test features they declare: `process-vmm`, `kill-points` |
//! | `guest/` | the boot bundle |
//! | `images/` | root file systems as tar files |
//! | `fixtures/<crate>/` | what lies under `crates/<crate>/tests/` and is not Rust |
//! | `fixtures/{tests,examples,scripts}/` | what lies under the project's folders of these names |
//! | `tests/`, `tests.json` | the test programs, and their list |
//! | `work/`, `logs/` | a folder a running test program, and what each printed |

mod build;
mod failures;
mod index;
mod leftovers;
mod libtest;
mod lock;
mod process;
mod run;
mod stage;

use std::path::PathBuf;

use anyhow::Result;

/// How to stage.
#[derive(Debug, clap::Args)]
pub(crate) struct StageArgs {
    /// Where to: the VK_TEST_ROOT of the later run
    #[arg(long)]
    root: PathBuf,
    /// Optimised programs and tests
    #[arg(long)]
    release: bool,
    /// Programs, guest and images only
    #[arg(long)]
    no_tests: bool,
    /// The tests of crates with fuzzers optimised, with the checks of a debug build
    #[arg(long, conflicts_with = "release")]
    long: bool,
    /// Those of these crates alone
    #[arg(requires = "long")]
    crates: Vec<String>,
}

/// How to test.
#[derive(Debug, clap::Args)]
pub(crate) struct TestArgs {
    /// Where `stage` laid things out
    #[arg(long)]
    root: PathBuf,
    /// Run as this user; needs root
    #[arg(long)]
    user: Option<String>,
    /// Seconds one test program may take where its crate does not say
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Multiply every time limit
    #[arg(long, default_value_t = 1)]
    patience: u64,
    /// Only the tests of these crates
    crates: Vec<String>,
}

/// Builds and lays out.
pub(crate) fn stage(args: &StageArgs) -> Result<bool> {
    stage::stage(args)?;
    Ok(true)
}

/// Runs and counts; `false` where a test failed or something was left behind.
pub(crate) fn test(args: &TestArgs) -> Result<bool> {
    run::run(args)
}

/// Tests that start processes take turns: what one leaves behind is looked for in all of them.
#[cfg(test)]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
