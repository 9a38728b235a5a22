//! From arguments to what they ask for.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use vk_hub_proto::RelayId;
use vk_hub_proto::client::CancelMode;

use crate::admin::{Call, GitLab, JobRow, NodeRow, RelayRow, Status, call};
use crate::cli::{
    Cli, Command, GitLabCommand, JobsCommand, NodesCommand, Projects, RelaysCommand, TokenCommand,
};
use crate::config::Config;
use crate::store::AuditLine;
use crate::{serve, show};

/// Does what the command line asks for.
///
/// # Errors
/// It could not be done; the message says why and what to do.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    let config = Config::read(cli.config.as_deref())?;
    let socket = config.admin_socket();
    match cli.command {
        Command::Init { names } => serve::init(&config, names),
        Command::Serve => {
            log(&cli.log_level, cli.log_json)?;
            tokio::runtime::Runtime::new()?.block_on(serve::serve(config))
        }
        Command::Status { json } => show::<Status>(&socket, Call::Status, json, show::status),
        Command::Token {
            command: TokenCommand::Create { kind, ttl },
        } => {
            let token: String = call(
                &socket,
                Call::TokenCreate {
                    kind,
                    lives_secs: ttl,
                },
            )?;
            println!("{token}");
            Ok(())
        }
        Command::Nodes {
            json,
            command: None,
        } => show::<Vec<NodeRow>>(&socket, Call::Nodes, json, |rows| show::nodes(rows)),
        Command::Nodes {
            command: Some(command),
            ..
        } => done(&socket, nodes(command)),
        Command::Relays { json, command } => relays(&socket, json, command.as_ref()),
        Command::Audit { json, lines } => {
            let call = Call::Audit { most: lines };
            show::<Vec<AuditLine>>(&socket, call, json, |lines| show::audit(lines))
        }
        Command::Gitlab { json, command } => gitlab(&socket, json, command),
        Command::Jobs {
            json,
            command: None,
        } => show::<Vec<JobRow>>(&socket, Call::Jobs, json, |rows| show::jobs(rows)),
        Command::Jobs {
            command: Some(command),
            ..
        } => jobs(&socket, &command),
    }
}

fn nodes(command: NodesCommand) -> Call {
    match command {
        NodesCommand::Pools { node, pools } => Call::NodesPools { node, pools },
        NodesCommand::Ceiling { node, ceiling } => Call::NodesCeiling {
            node,
            ceiling: ceiling.0,
        },
        NodesCommand::Remove { node } => Call::NodesRemove { node },
    }
}

fn jobs(socket: &Path, command: &JobsCommand) -> anyhow::Result<()> {
    match *command {
        JobsCommand::Show { job, json } => {
            show::<JobRow>(socket, Call::JobsShow { job }, json, show::job)
        }
        JobsCommand::Cancel { job, immediate } => {
            let mode = if immediate {
                CancelMode::Immediate
            } else {
                CancelMode::Graceful
            };
            done(socket, Call::JobsCancel { job, mode })
        }
        JobsCommand::Settle { job } => done(socket, Call::JobsSettle { job }),
    }
}

fn remove_relay(socket: &Path, relay: RelayId) -> anyhow::Result<()> {
    let held: usize = call(socket, Call::RelaysRemove { relay })?;
    if held > 0 {
        eprintln!(
            "warning: it holds {held} job(s) of which GitLab will not hear any more: they run to \
             their end here, and GitLab fails them at their timeout"
        );
    }
    Ok(())
}

fn relays(socket: &Path, json: bool, command: Option<&RelaysCommand>) -> anyhow::Result<()> {
    let json = match command {
        None => json,
        Some(RelaysCommand::List { json: own }) => json || *own,
        Some(RelaysCommand::Remove { relay }) => return remove_relay(socket, *relay),
    };
    show::<Vec<RelayRow>>(socket, Call::Relays, json, |rows| show::relays(rows))
}

fn gitlab(socket: &Path, json: bool, command: Option<GitLabCommand>) -> anyhow::Result<()> {
    let (targets, approved, projects) = match command {
        None => return show::<GitLab>(socket, Call::Gitlab, json, show::gitlab),
        Some(GitLabCommand::List { json: own }) => {
            return show::<GitLab>(socket, Call::Gitlab, json || own, show::gitlab);
        }
        Some(GitLabCommand::Pending { json: own }) => {
            return show::<GitLab>(socket, Call::Gitlab, json || own, |all| {
                show::pending(&all.pending)
            });
        }
        Some(GitLabCommand::Approve { targets, projects }) => (targets, true, projects),
        Some(GitLabCommand::Reject { targets }) => (targets, false, None),
    };
    // Each is a decision of its own: what was done before one fails is said.
    for target in targets {
        let all_projects = projects.map(|projects| projects == Projects::All);
        done(
            socket,
            Call::GitlabDecide {
                target,
                approved,
                all_projects,
            },
        )?;
        println!(
            "{} {target}",
            if approved { "approved" } else { "rejected" }
        );
    }
    Ok(())
}

fn show<T: DeserializeOwned + Serialize>(
    socket: &Path,
    what: Call,
    json: bool,
    print: impl FnOnce(&T) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    let value: T = call(socket, what)?;
    if json {
        print_json(&value)
    } else {
        Ok(read_enough(print(&value))?)
    }
}

/// Whoever read stdout has enough, as with `| head`: no error.
fn read_enough(printed: std::io::Result<()>) -> std::io::Result<()> {
    match printed {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

fn print_json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(read_enough(writeln!(std::io::stdout(), "{text}"))?)
}

fn done(socket: &Path, what: Call) -> anyhow::Result<()> {
    call::<serde_json::Value>(socket, what)?;
    Ok(())
}

fn log(filter: &str, json: bool) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .with_context(|| format!("--log-level {filter:?} is no filter"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr);
    let set = if json {
        builder.json().try_init()
    } else {
        builder.try_init()
    };
    set.map_err(|error| anyhow::anyhow!("the log cannot be set up: {error}"))
}
