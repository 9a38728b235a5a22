//! `vk node …`: this host as a node of a hub.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use vk_hub_client::{EnrolmentToken, HubUrl};
use vk_node::config::{Config, ConfigError};
use vk_node::daemon::DaemonError;
use vk_node::join::{Join, join};
use vk_node::state_dir::{StateDir, StateDirError};

use crate::owner::{refuse_other_users, warn_of_root};
use crate::start::run_async;

pub(crate) mod caches;
mod drain;
mod driver;
mod gc;
mod images;
mod run;
mod service;
mod show;
pub(crate) mod vmm;

/// The exit code where another process has the state directory.
const LOCKED: u8 = 75;
/// The exit code where an operator has to do something first: join a hub, again where it refuses this
/// node for good, or mend the configuration.
const NOT_SET_UP: u8 = 78;
/// A token or CA at most.
const FILE_BYTES: u64 = 1 << 20;

/// Arguments of `vk node`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Join a hub: make a key and have the hub pin it.
    #[command(after_help = JOIN_EXAMPLES)]
    Join(JoinArguments),
    /// Run this host's jobs until a SIGTERM; jobs outlive it.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Place),
    /// Show the jobs of this host: those it has, and the last ones it had.
    #[command(after_help = JOBS_EXAMPLES)]
    Jobs(ShowArguments),
    /// Show how this node stands.
    #[command(after_help = STATUS_EXAMPLES)]
    Status(ShowArguments),
    /// Take no new work, and let the jobs that are here come to their end.
    ///
    /// Reservations that the node gave are still honoured; no new ones are given. It stays so over
    /// restarts of the node, until `vk node undrain`.
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(DrainArguments),
    /// Take work again.
    #[command(after_help = UNDRAIN_EXAMPLES)]
    Undrain(Place),
    /// Remove what nobody needs any more; safe beside a running node.
    ///
    /// Directories of finished jobs that stayed behind, images, mirrors, LFS files and kept trees that
    /// were not used for long, and what processes that died were making. Never what a job uses.
    #[command(after_help = gc::EXAMPLES)]
    Gc(gc::Arguments),
    /// This node under systemd: install its unit, or remove it.
    Service(service::Arguments),
    /// One job's process.
    #[command(hide = true)]
    Job {
        /// The job's directory.
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Place {
    /// The configuration; $VK_CONFIG, ~/.config/vk/config.toml or /etc/vk/config.toml where not
    /// given.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where this host keeps its state, in the place of the configuration's.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct JoinArguments {
    /// The hub, such as https://hub.example.com:8443.
    hub: HubUrl,
    /// `-`: read the enrolment token from standard input.
    #[arg(long, value_name = "-", required_unless_present = "token_file")]
    token: Option<String>,
    /// Read the enrolment token from this file.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Trust this CA (PEM) instead of the one that the token names.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Leave the hub that this node joined before.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    place: Place,
}

const JOIN_EXAMPLES: &str = "Examples:
  vk-hub token create | ssh node1 sudo -u vk vk node join https://hub.example.com:8443 --token -
  sudo -u vk vk node join https://hub.example.com:8443 --token-file /run/vk/token";

const RUN_EXAMPLES: &str = "Examples:
  sudo -u vk vk node run             # by hand; `vk node service install` has systemd do it
  VK_LOG=info vk node run --config vk.toml --state-dir state";

const JOBS_EXAMPLES: &str = "Examples:
  sudo -u vk vk node jobs
  vk node jobs --json | jq '.[] | select(.state == \"running\")'";

const STATUS_EXAMPLES: &str = "Examples:
  sudo -u vk vk node status
  vk node status --json | jq .state";

const UNDRAIN_EXAMPLES: &str = "Examples:
  sudo -u vk vk node undrain         # after a drain, or once the work on the host is done";

const DRAIN_EXAMPLES: &str = "Examples:
  vk node drain --wait && systemctl stop vk-node    # before an upgrade
  vk node drain --wait --maintenance && reboot      # not to be undrained from the hub
  vk node undrain                                   # after it";

#[derive(Debug, Args)]
struct DrainArguments {
    /// Return once nothing is left here, telling on standard error what is.
    #[arg(long)]
    wait: bool,
    /// For work on this host: the node is in maintenance once nothing is left, and no operator of the
    /// hub ends that, only `vk node undrain` here.
    #[arg(long)]
    maintenance: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct ShowArguments {
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

impl Place {
    fn config(&self) -> anyhow::Result<Config> {
        let mut config = Config::read(self.config.as_deref())?;
        if let Some(dir) = &self.state_dir {
            config.state_dir = std::path::absolute(dir)?;
        }
        Ok(config)
    }

    /// The state that is there, for commands that make none.
    fn look(&self) -> anyhow::Result<StateDir> {
        let dir = self.config()?.state_dir;
        StateDir::look(&dir).with_context(|| {
            format!(
                "there is no node's state in {}: `vk node join` makes it, as the node's own user; \
                 another place is named by state_dir or --state-dir",
                dir.display()
            )
        })
    }
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let done = match arguments.command {
        Command::Join(arguments) => run_async(run_join(arguments)),
        Command::Run(place) => run_async(async move { run::run(place.config()?).await }),
        Command::Jobs(arguments) => run_async(async move {
            let state = arguments.place.look()?;
            show::jobs(&state, arguments.json).await
        }),
        Command::Status(arguments) => run_async(async move {
            let state = arguments.place.look()?;
            show::status(&state, arguments.json).await
        }),
        Command::Drain(arguments) => run_async(async move {
            let state = arguments.place.look()?;
            let DrainArguments {
                wait, maintenance, ..
            } = arguments;
            drain::drain(&state, wait, maintenance).await
        }),
        Command::Undrain(place) => run_async(async move { drain::undrain(&place.look()?).await }),
        Command::Gc(arguments) => run_async(gc::run(arguments)),
        Command::Service(arguments) => run_async(service::run(arguments)),
        Command::Job { dir } => run::job(&dir),
    };
    match done {
        Err(error) => match code(&error) {
            Some(code) => {
                // With nowhere to write to there is nothing left to do.
                let text = format_args!("vk: {error:#}\n");
                let _ = std::io::Write::write_fmt(&mut std::io::stderr(), text);
                Ok(ExitCode::from(code))
            }
            None => Err(error),
        },
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

/// An error's own exit code, where it has one.
fn code(error: &anyhow::Error) -> Option<u8> {
    error.chain().find_map(|cause| {
        let locked = |cause: &StateDirError| matches!(cause, StateDirError::Locked { .. });
        if cause.downcast_ref().is_some_and(locked) {
            return Some(LOCKED);
        }
        // A file that cannot be read may be there soon: its mount is late.
        let senseless = |cause: &ConfigError| !matches!(cause, ConfigError::Read { .. });
        let refused = |cause: &DaemonError| matches!(cause, DaemonError::Refused(_));
        let not_set_up = cause.is::<run::NotJoined>()
            || cause.downcast_ref().is_some_and(senseless)
            || cause.downcast_ref().is_some_and(refused);
        not_set_up.then_some(NOT_SET_UP)
    })
}

async fn run_join(arguments: JoinArguments) -> anyhow::Result<()> {
    let token = match (arguments.token.as_deref(), &arguments.token_file) {
        (Some("-"), _) => {
            use std::io::Read as _;
            let mut text = String::new();
            std::io::stdin()
                .take(FILE_BYTES)
                .read_to_string(&mut text)
                .context("cannot read the enrolment token from standard input")?;
            text
        }
        (Some(_), _) => bail!(
            "a token in an argument can be read by everybody on this host: give `--token -` or \
             --token-file"
        ),
        (None, Some(file)) => read(file)?,
        (None, None) => bail!("give the enrolment token with `--token -` or --token-file"),
    };
    let token: EnrolmentToken = token.parse()?;
    let ca = arguments.ca.as_deref().map(read).transpose()?;
    let dir = arguments.place.config()?.state_dir;
    refuse_other_users(&dir, "vk node join")?;
    warn_of_root();
    let state = StateDir::open(&dir)?;
    let node = join(
        &state,
        Join {
            hub: arguments.hub.clone(),
            token: &token,
            ca: ca.map(String::into_bytes),
            replace: arguments.replace,
        },
    )
    .await?;
    show::line(format_args!("joined {} as node {node}", arguments.hub))
}

fn read(file: &Path) -> anyhow::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(file)
        .and_then(|opened| opened.take(FILE_BYTES).read_to_string(&mut text))
        .with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use vk_hub_client::session::SessionError;
    use vk_hub_proto::node_session::RefusedCode;

    use super::*;

    #[test]
    fn what_only_an_operator_mends_has_the_exit_code_that_ends_restarts() {
        let path = || PathBuf::from("/etc/vk/config.toml");
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        let unread = ConfigError::Read {
            path: path(),
            source,
        };
        assert_eq!(code(&anyhow::Error::from(unread)), None, "it may be late");
        let why = "unknown field".to_owned();
        let senseless = ConfigError::Parse { path: path(), why };
        assert_eq!(code(&anyhow::Error::from(senseless)), Some(78));
        let refused = DaemonError::Refused(SessionError::Refused {
            code: RefusedCode::Revoked,
            reason: String::new(),
        });
        let refused = anyhow::Error::from(refused).context("the node ends");
        assert_eq!(code(&refused), Some(78));
        let other = anyhow::Error::from(DaemonError::NoRandomness);
        assert_eq!(code(&other), None);
    }
}
