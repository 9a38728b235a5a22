//! Work on the house itself, never shipped: which clauses stand above which tests, the checks that
//! a compiler does not make, and the staged test run as an ordinary user.
//!
//! Called by `make`; nothing in the workspace depends on it.

#![forbid(unsafe_code)]

mod clauses;
mod contract;
mod law;
mod source;
mod suite;
mod testfns;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The tasks of the house.
#[derive(Parser)]
#[command(name = "xtask", about = "Work on the house itself")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Print which clauses of docs/contract.md stand above which tests, and which above none
    Clauses(clauses::Args),
    /// Check what the compiler does not: floors, pure cores, file sizes, names, and the like
    Check(law::Args),
    /// Build programs and tests, and lay them out where an ordinary user can run them
    Stage(suite::StageArgs),
    /// Run the staged test programs, one after another, and count
    Test(suite::TestArgs),
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs one task; `false` is a task that did its work and found something wrong.
fn run(task: Task) -> Result<bool> {
    match task {
        Task::Clauses(args) => clauses::run(&args),
        Task::Check(args) => law::run(&args),
        Task::Stage(args) => suite::stage(&args),
        Task::Test(args) => suite::test(&args),
    }
}
