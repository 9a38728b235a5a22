//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use vk_hub_proto::{JobId, Name, NodeId, RelayId};

use crate::admin::{Kind, Target};
use crate::config::parse_duration;

/// The hub of a fleet: enrols nodes and daemons, reserves room, places jobs, stores their output.
#[derive(Debug, Parser)]
#[command(name = "vk-hub", version, after_help = EXAMPLES)]
pub struct Cli {
    /// The configuration; without it every key has its default.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Which log lines are written, as RUST_LOG has them.
    #[arg(long, global = true, value_name = "FILTER", default_value = "info")]
    pub log_level: String,
    /// Log lines as JSON.
    #[arg(long)]
    pub log_json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  vk-hub init --name hub.example.com       make the CA and the server's certificate
  vk-hub serve --config /etc/vk-hub/hub.toml
  vk-hub token create                      a token for `vk node join`
  vk-hub token create --kind gitlab        a token for `vk-gitlab join`
  vk-hub gitlab                            GitLab servers and projects, and what waits
  vk-hub gitlab approve s1 --projects all  take a server's jobs, whatever the project
  vk-hub nodes pools <id> default,large
  vk-hub jobs show <id> --json

Exit status: 0 done, 1 failed or refused, 2 the arguments make no sense.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the data directory, a CA and the server's certificate.
    Init {
        /// A name or address the hub is reached by; may be repeated. The host's name, localhost
        /// and the loopback addresses are in the certificate anyway.
        #[arg(long = "name", value_name = "HOST")]
        names: Vec<String>,
    },
    /// Run the hub.
    Serve,
    /// How the hub is.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Enrolment tokens.
    Token {
        /// What to do with them.
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// The fleet's nodes; alone, a list of them.
    Nodes {
        /// As JSON.
        #[arg(long)]
        json: bool,
        /// What to do with one.
        #[command(subcommand)]
        command: Option<NodesCommand>,
    },
    /// The enrolled daemons; alone, a list of them.
    Relays {
        /// As JSON.
        #[arg(long)]
        json: bool,
        /// What to do with one.
        #[command(subcommand)]
        command: Option<RelaysCommand>,
    },
    /// GitLab servers and projects; alone, a list of them.
    Gitlab {
        /// As JSON.
        #[arg(long)]
        json: bool,
        /// What to do with them.
        #[command(subcommand)]
        command: Option<GitLabCommand>,
    },
    /// What operators decided and what changed, oldest first.
    Audit {
        /// As JSON.
        #[arg(long)]
        json: bool,
        /// How many lines, the newest.
        #[arg(short = 'n', long, value_name = "LINES", default_value_t = 50,
              value_parser = clap::value_parser!(u32).range(1..=2_000))]
        lines: u32,
    },
    /// The jobs, newest first; alone, a list of them.
    Jobs {
        /// As JSON.
        #[arg(long)]
        json: bool,
        /// What to do with one.
        #[command(subcommand)]
        command: Option<JobsCommand>,
    },
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Print a fresh token: it is good once.
    Create {
        /// Who joins with it.
        #[arg(long, value_enum, default_value_t)]
        kind: Kind,
        /// How long it is good, at most 30d.
        #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = token_life)]
        ttl: u64,
    },
}

/// What to do with a node.
#[derive(Debug, Subcommand)]
pub enum NodesCommand {
    /// Say which pools a node is in.
    Pools {
        /// Its ID.
        node: NodeId,
        /// All of them, with commas between.
        #[arg(value_delimiter = ',', required = true)]
        pools: Vec<Name>,
    },
    /// Cap a node's placed work.
    Ceiling {
        /// Its ID.
        node: NodeId,
        /// Jobs and reservations at most; `none` leaves it to the node.
        #[arg(value_parser = ceiling)]
        ceiling: Ceiling,
    },
    /// Remove a node: its session closes and its jobs are lost.
    Remove {
        /// Its ID.
        node: NodeId,
    },
}

/// What to do with servers and projects. Daemons hear of it at once.
#[derive(Debug, Subcommand)]
pub enum GitLabCommand {
    /// List them.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// List what waits for a decision.
    Pending {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Take their jobs. A server's approval also binds the relays that report it now.
    Approve {
        /// Servers (s1) and projects (p1), as the list has them.
        #[arg(required = true)]
        targets: Vec<Target>,
        /// Of a server: whether each project waits for its own approval.
        #[arg(long, value_enum)]
        projects: Option<Projects>,
    },
    /// Refuse their jobs. Those that run go on.
    Reject {
        /// Servers (s1) and projects (p1), as the list has them.
        #[arg(required = true)]
        targets: Vec<Target>,
    },
}

/// Whether a server's projects wait for an approval each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Projects {
    /// None does, but for those that were rejected.
    All,
    /// Each does.
    Ask,
}

/// What to do with a relay.
#[derive(Debug, Subcommand)]
pub enum RelaysCommand {
    /// List them.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove a relay: its session ends, and its requests are refused from now on.
    Remove {
        /// Its ID.
        relay: RelayId,
    },
}

/// What to do with a job.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// Show one.
    Show {
        /// Its ID.
        job: JobId,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Stop one.
    Cancel {
        /// Its ID.
        job: JobId,
        /// At once, without its after_script.
        #[arg(long)]
        immediate: bool,
    },
    /// Drop a finished job's output although its daemon never asked for it.
    Settle {
        /// Its ID.
        job: JobId,
    },
}

/// A cap, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling(pub Option<u32>);

fn ceiling(text: &str) -> Result<Ceiling, String> {
    match text {
        "none" => Ok(Ceiling(None)),
        _ => match text.parse() {
            Ok(0) => Err("0 would stop the node: drain it instead".to_owned()),
            Ok(number) => Ok(Ceiling(Some(number))),
            Err(_) => Err("a ceiling is a number from 1, or `none`".to_owned()),
        },
    }
}

/// Seconds of a token's life (ENR-14).
fn token_life(text: &str) -> Result<u64, String> {
    let life = parse_duration(text)?.as_secs();
    if (1..=30 * 86_400).contains(&life) {
        Ok(life)
    } else {
        Err("a token is good for 1s to 30d".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    /// ENR-14
    #[test]
    fn a_token_lives_an_hour_and_at_most_30_days() {
        let life = |arguments: &[&str]| match Cli::try_parse_from(arguments)?.command {
            Command::Token {
                command: TokenCommand::Create { ttl, .. },
            } => Ok::<_, clap::Error>(ttl),
            _ => Ok(0),
        };
        assert_eq!(life(&["vk-hub", "token", "create"]).unwrap(), 3600);
        assert_eq!(
            life(&["vk-hub", "token", "create", "--ttl", "30d"]).unwrap(),
            2_592_000
        );
        assert!(life(&["vk-hub", "token", "create", "--ttl", "31d"]).is_err());
        assert!(life(&["vk-hub", "token", "create", "--ttl", "0s"]).is_err());
    }

    /// A list is a list, whether or not it is asked for by name.
    #[test]
    fn lists_are_printed_as_json_wherever_that_is_said() {
        for line in [
            "relays list --json",
            "relays --json list",
            "gitlab list --json",
            "gitlab pending --json",
            "gitlab --json pending",
        ] {
            let words = ["vk-hub"].into_iter().chain(line.split(' '));
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }

    #[test]
    fn servers_and_projects_are_named_as_the_list_has_them() {
        let cli = Cli::try_parse_from(["vk-hub", "gitlab", "approve", "s1", "p2"]).unwrap();
        let Command::Gitlab {
            command: Some(GitLabCommand::Approve { targets, projects }),
            ..
        } = cli.command
        else {
            panic!("approve")
        };
        assert_eq!((targets.len(), projects), (2, None));
        assert!(Cli::try_parse_from(["vk-hub", "gitlab", "approve"]).is_err());
        assert!(Cli::try_parse_from(["vk-hub", "gitlab", "reject", "1"]).is_err());
    }

    /// PLACE-02
    #[test]
    fn pools_are_named_with_commas_between() {
        let id = "00000000000000000000000000000001";
        let cli = Cli::try_parse_from(["vk-hub", "nodes", "pools", id, "ci,large"]).unwrap();
        let Command::Nodes {
            command: Some(NodesCommand::Pools { pools, .. }),
            ..
        } = cli.command
        else {
            panic!("pools")
        };
        assert_eq!(pools.len(), 2);
        assert!(Cli::try_parse_from(["vk-hub", "nodes", "pools", id, "c i"]).is_err());
    }
}
