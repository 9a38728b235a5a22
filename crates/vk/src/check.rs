//! `vk check`: can this host run jobs, and where not, what to do about it.

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tokio::time::timeout;
use vk_node::config::Config;

use crate::start::run_async_quiet;

mod hub;
mod machine;
mod net;
mod registry;
mod storage;
mod tools;

/// How long one check may take, the boot's own limit aside.
const LIMIT: Duration = Duration::from_secs(60);

const EXAMPLES: &str = "Examples:
  sudo -u vk vk check            # as the node's own user, who may be allowed less than you
  vk check --only kvm --only boot
  vk check --json | jq '.[] | select(.verdict == \"fail\")'

Exit codes:
  0  jobs run here, perhaps with what is warned of
  1  they do not: each failure says what to do
  2  the arguments make no sense";

/// Arguments of `vk check`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Only this; may be given several times.
    #[arg(long, value_name = "CHECK")]
    only: Vec<Check>,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// The configuration; $VK_CONFIG, ~/.config/vk/config.toml or /etc/vk/config.toml where not
    /// given.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where this host keeps its state, in the place of the configuration's.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// What is checked, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Check {
    /// The configuration parses.
    Config,
    /// The programs that jobs need are there.
    Programs,
    /// The state directory is the node's own, and its disk has room.
    Disk,
    /// There is memory for the largest guest.
    Memory,
    /// The boot bundle is whole.
    Bundle,
    /// Guests can be confined: user, mount, network and PID namespaces.
    Confinement,
    /// Guests can be given the network that is configured.
    Network,
    /// Caches can be kept at the registry that is configured.
    Registry,
    /// A guest boots under KVM.
    Kvm,
    /// A guest boots as jobs' guests do, and its agent answers over vsock.
    Boot,
    /// No gitlab-runner of its own keeps this host from the hub's jobs.
    Runner,
    /// The node has joined a hub, and reaches it.
    Hub,
    /// The clock is the hub's.
    Clock,
    /// The node's daemon runs, in a session with its hub.
    Daemon,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// Not looked at, since something before it is missing.
    Skipped,
    /// Jobs run, and not as well as they might.
    Warn,
    /// Jobs do not run.
    Fail,
}

/// What a check found.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    check: Check,
    verdict: Verdict,
    /// What was found.
    what: String,
    /// What to do about it; empty where there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    remedy: String,
}

/// A finding of a check that knows its name not.
struct Found {
    verdict: Verdict,
    what: String,
    remedy: String,
}

impl Found {
    fn ok(what: impl Into<String>) -> Found {
        Found::new(Verdict::Ok, what, "")
    }

    fn skipped(what: impl Into<String>) -> Found {
        Found::new(Verdict::Skipped, what, "")
    }

    fn warn(what: impl Into<String>, remedy: impl Into<String>) -> Found {
        Found::new(Verdict::Warn, what, remedy)
    }

    fn fail(what: impl Into<String>, remedy: impl Into<String>) -> Found {
        Found::new(Verdict::Fail, what, remedy)
    }

    fn new(verdict: Verdict, what: impl Into<String>, remedy: impl Into<String>) -> Found {
        Found {
            verdict,
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    run_async_quiet(async move {
        let findings = all(&arguments).await;
        if arguments.json {
            let text = serde_json::to_string_pretty(&findings)?;
            // With nowhere to write to there is still the exit code.
            let _ = writeln!(std::io::stdout(), "{text}");
        }
        let failed = findings.iter().any(|one| one.verdict == Verdict::Fail);
        Ok(ExitCode::from(u8::from(failed)))
    })
}

async fn all(arguments: &Arguments) -> Vec<Finding> {
    let mut findings = Vec::new();
    let config = config(arguments);
    for check in Check::value_variants() {
        // A check that cannot be made for want of a configuration is not passed.
        let is_refused = *check == Check::Config && config.is_err();
        let asked = is_refused || arguments.only.is_empty() || arguments.only.contains(check);
        if !asked {
            continue;
        }
        let found = match (&config, check) {
            (Ok(config), Check::Config) => match &config.file {
                Some(file) => Found::ok(file.display().to_string()),
                None => Found::ok("none: every key has its default"),
            },
            (Err(why), Check::Config) => Found::fail(why, "mend the file, or name another one"),
            (Err(_), _) => Found::skipped("the configuration cannot be read"),
            (Ok(config), check) => one(*check, config).await,
        };
        let finding = Finding {
            check: *check,
            verdict: found.verdict,
            what: found.what,
            remedy: found.remedy,
        };
        if !arguments.json {
            // With nowhere to write to there is still the exit code.
            let _ = write!(std::io::stdout(), "{finding}");
        }
        findings.push(finding);
    }
    findings
}

fn config(arguments: &Arguments) -> Result<Config, String> {
    let mut config = Config::read(arguments.config.as_deref()).map_err(chain)?;
    if let Some(dir) = &arguments.state_dir {
        config.state_dir = std::path::absolute(dir).map_err(chain)?;
    }
    Ok(config)
}

/// One check, within its limit.
async fn one(check: Check, config: &Config) -> Found {
    let boot_limit = config.vm.boot_timeout;
    let checking = async {
        match check {
            Check::Config => Found::ok(""),
            Check::Programs => tools::programs(config),
            Check::Disk => storage::disk(config),
            Check::Memory => storage::memory(config),
            Check::Bundle => machine::bundle(config),
            Check::Confinement => machine::confinement(config).await,
            Check::Network => net::network(config),
            Check::Registry => registry::registry(config).await,
            Check::Kvm => machine::kvm(config).await,
            Check::Boot => machine::boot(config).await,
            Check::Runner => tools::runner(config),
            Check::Hub => hub::hub(config).await,
            Check::Clock => hub::clock(config).await,
            Check::Daemon => hub::daemon(config).await,
        }
    };
    let limit = LIMIT + boot_limit;
    timeout(limit, checking).await.unwrap_or_else(|_| {
        let what = format!("no answer within {} s", limit.as_secs());
        Found::fail(what, "look at what this host is busy with, and try again")
    })
}

/// An error with its causes.
fn chain(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Skipped => "–",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        let name = self.check.to_possible_value();
        let name = name.as_ref().map_or("", |value| value.get_name());
        writeln!(f, "{verdict:<5} {name:<12} {}", self.what)?;
        if !self.remedy.is_empty() {
            writeln!(f, "{:<18} do: {}", "", self.remedy)?;
        }
        Ok(())
    }
}
