//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::log::Format;

/// Takes jobs from GitLab when the fleet has room for them, and writes their traces and states.
#[derive(Debug, Parser)]
#[command(name = "vk-gitlab", version, after_help = EXAMPLES)]
pub struct Cli {
    /// Which log lines are written, as RUST_LOG has them.
    #[arg(long, global = true, value_name = "FILTER", default_value = "info")]
    pub log_level: String,
    /// What log lines look like.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub log_format: Format,
    /// The configuration.
    #[arg(
        short,
        long,
        global = true,
        value_name = "FILE",
        default_value = "/etc/vk-gitlab/config.toml"
    )]
    pub config: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  vk-hub token create --kind gitlab | vk-gitlab join https://hub.example.com:8443 --token -
  vk-gitlab verify                 does GitLab take each runner's token?
  vk-gitlab run                    until SIGTERM, which drains; a second one ends it at once

Jobs that run are never touched by a restart: they go on where they were. SIGHUP reads the
configuration again; a changed token file is noticed without it.
Exit status: 0 done, 1 failed or refused, 2 the arguments make no sense.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Take jobs until told to stop.
    Run,
    /// Ask GitLab about every runner's token, and print what it says.
    Verify,
    /// The configuration.
    Config {
        /// What to do with it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// The jobs in the state files.
    Jobs {
        /// As JSON, without their secrets.
        #[arg(long)]
        json: bool,
    },
    /// Enrol with a hub: its CA is trusted from then on, and no other.
    Join {
        /// The hub: https://host[:port].
        hub: String,
        /// `-`: read the enrolment token from standard input, where no list of processes shows it.
        #[arg(long, value_name = "-")]
        token: String,
        /// Trust this CA instead of the one that the token names.
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        /// Enrol again although this daemon is enrolled.
        #[arg(long)]
        replace: bool,
    },
    /// Forget the hub: delete key, CA and enrolment.
    Leave,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check it and the files it names.
    Check,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    /// ENR-02
    #[test]
    fn join_takes_its_token_from_standard_input() {
        let join = [
            "vk-gitlab",
            "join",
            "https://hub.example.com",
            "--token",
            "-",
        ];
        let Command::Join { token, replace, .. } = Cli::try_parse_from(join).unwrap().command
        else {
            panic!("join")
        };
        assert_eq!((token.as_str(), replace), ("-", false));
        assert!(Cli::try_parse_from(["vk-gitlab", "join", "https://hub.example.com"]).is_err());
    }
}
