//! `vk`: the program of a node. Arguments and start-up only; what it does lives in the crates.

#![forbid(unsafe_code)]

mod check;
mod guest;
mod image;
mod job;
#[cfg(test)]
mod manual;
mod node;
mod owner;
mod start;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs GitLab CI jobs in microVMs.
#[derive(Debug, Parser)]
#[command(name = "vk", version = start::VERSION)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// One variant, and one file beside this one, a group of commands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Can this host run jobs? Tries it, and says what to do where not.
    Check(check::Arguments),
    /// The guests' boot bundle: pack it, boot it once.
    Guest(guest::Arguments),
    /// The images that jobs run in: import, list, pull, remove.
    Image(image::Arguments),
    /// One job on this host, with no hub.
    Job(job::Arguments),
    /// This host as a node of a hub.
    Node(node::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Check(arguments) => check::run(arguments),
        Command::Guest(arguments) => guest::run(arguments),
        Command::Image(arguments) => image::run(arguments),
        Command::Job(arguments) => job::run(arguments),
        Command::Node(arguments) => node::run(arguments),
    };
    start::exit_code(outcome)
}
