//! The command line.

mod run;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Parser, Subcommand};
use serde_json::Value;

use crate::admin::{self, CallError, Command as Admin, Expected, FaultPlan};
use crate::serve::{Options, ServeError};

/// Longest pipeline or command read from a file.
const MAX_INPUT: u64 = 8 << 20;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed: the message says what to do
  2  the command line is wrong
  3  serve: it ended with broken invariants; invariants: the list is not empty;
     status --wait: the pipeline did not succeed";

const SERVE_EXAMPLES: &str = "\
Examples:
  vk-lab serve --addr 127.0.0.1:8929 --project ./hello --token-file ./runner-token --admin ./lab.sock
  vk-lab serve --addr 10.0.0.2:80 --url http://gitlab.test --project acme/web=/srv/web \\
      --variables ~/web.toml --token-file /run/lab/token --state /run/lab

It prints one JSON line when it serves ({\"event\":\"serving\",\"url\":…,\"admin\":…}) and one when
SIGTERM or SIGINT ends it ({\"event\":\"ended\",\"broken\":[…]}).

The file of variables is TOML, mode 0600, outside every project:
  GREETING = \"hello\"
  [DEPLOY_TOKEN]
  value = \"a-long-secret\"
  masked = true          # also: file, raw, protected";

const TRIGGER_EXAMPLES: &str = "\
Examples:
  vk-lab trigger --admin ./lab.sock pipeline.json
  echo '{\"jobs\":[{\"name\":\"hello\",\"image\":\"debian\",\"script\":[\"echo hello\"]}]}' |
      vk-lab trigger --admin ./lab.sock -

A pipeline is {project, ref, stages, variables, jobs}; a job is {name, stage, image, script,
after_script, variables, artifacts, cache, pre_get_sources_script, needs, dependencies, timeout,
allow_failure, when, tags, retry, response}; `response` is merged into the job response as it leaves.
A variable is a string, or {value, masked, file, raw}. What is not known is refused.";

/// Runs a project's pipeline on this host, and plays GitLab: the server side of the runner API, git,
/// artifacts, and what a run broke.
#[derive(Debug, Parser)]
#[command(name = "vk-lab", version, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run a project's `.gitlab-ci.yml` in microVMs on this host.
    #[command(after_help = run::EXAMPLES)]
    Run(Box<run::RunArguments>),
    /// Check a project's `.gitlab-ci.yml`, and print it put together.
    Config(run::ConfigArguments),
    /// Hold what a run has started.
    #[command(hide = true)]
    Keeper {
        /// Where the private directory is made.
        parent: PathBuf,
    },
    #[command(flatten)]
    Admin(Served),
}

/// The GitLab side alone.
#[derive(Debug, Subcommand)]
enum Served {
    /// Serve the GitLab side on an address.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Make a pipeline from a JSON file (`-` is the standard input).
    #[command(after_help = TRIGGER_EXAMPLES)]
    Trigger {
        #[command(flatten)]
        to: Socket,
        /// The pipeline's file.
        file: PathBuf,
    },
    /// Cancel a job.
    Cancel {
        #[command(flatten)]
        to: Socket,
        /// Its id.
        job: u64,
        /// Do not wait for the runner.
        #[arg(long)]
        force: bool,
    },
    /// Run a job that has ended once more.
    Retry {
        #[command(flatten)]
        to: Socket,
        /// Its id.
        job: u64,
    },
    /// Show runner, pipelines and jobs as JSON.
    Status {
        #[command(flatten)]
        to: Socket,
        /// Only this pipeline.
        pipeline: Option<u64>,
        /// Until it has ended; then the exit code is its status.
        #[arg(long, requires = "pipeline")]
        wait: bool,
    },
    /// Print a job's log as it is stored.
    Trace {
        #[command(flatten)]
        to: Socket,
        /// Its id.
        job: u64,
        /// Until the job has ended.
        #[arg(long)]
        follow: bool,
    },
    /// Print the broken invariants, one JSON line each.
    Invariants {
        #[command(flatten)]
        to: Socket,
    },
    /// Say what a job's log is to be; `invariants` compares.
    Expect {
        #[command(flatten)]
        to: Socket,
        /// Its id.
        job: u64,
        /// Exactly the bytes of this file.
        #[arg(
            long,
            conflicts_with = "contains",
            required_unless_present = "contains"
        )]
        trace_file: Option<PathBuf>,
        /// This text; several in their order.
        #[arg(long)]
        contains: Vec<String>,
    },
    /// Plan a fault.
    #[command(after_help = admin::INJECT)]
    Inject {
        #[command(flatten)]
        to: Socket,
        /// The fault as JSON.
        fault: String,
    },
    /// Send any command of the admin socket as JSON and print its answers.
    #[command(after_help = admin::ADMIN)]
    Admin {
        #[command(flatten)]
        to: Socket,
        /// The command, such as {"cmd":"advance","secs":3600}.
        command: String,
    },
}

#[derive(Debug, Args)]
struct Socket {
    /// The admin socket of `vk-lab serve`.
    #[arg(long)]
    admin: PathBuf,
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Where to listen.
    #[arg(long)]
    addr: SocketAddr,
    /// The address as runners and jobs see it [default: http://ADDR].
    #[arg(long)]
    url: Option<String>,
    /// A git repository, as DIR (served as lab/<its name>) or GROUP/NAME=DIR; several may be given.
    #[arg(long = "project", required = true)]
    projects: Vec<String>,
    /// Project variables: TOML, mode 0600.
    #[arg(long)]
    variables: Option<PathBuf>,
    /// Where to write the runner's token (mode 0600).
    #[arg(long)]
    token_file: PathBuf,
    /// Private directory; a temporary one is made, and removed at the end, when left out.
    #[arg(long)]
    state: Option<PathBuf>,
    /// The admin socket [default: admin.sock in the private directory].
    #[arg(long)]
    admin: Option<PathBuf>,
    /// A tag of the runner; several may be given.
    #[arg(long = "tag")]
    tags: Vec<String>,
    /// How long a job request is held, in nanoseconds: 0 is off, GitLab has 50 or 50000000000.
    #[arg(long, default_value_t = 50)]
    long_poll_ns: u64,
}

/// How a command ended, where nothing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Well.
    Done,
    /// Something is broken or did not succeed.
    Broken,
}

/// Why a command did not end well.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{what} is not what is expected: {source}; see --help for the form")]
    Json {
        what: String,
        source: serde_json::Error,
    },
    #[error("{0:?} names no project; write DIR or GROUP/NAME=DIR")]
    Project(String),
}

/// Runs a command and says how it ended, by the exit codes that `--help` lists.
pub fn run(cli: Cli) -> ExitCode {
    let what = match cli.what {
        What::Run(arguments) => return run::run(*arguments),
        What::Config(arguments) => return run::config(&arguments),
        What::Keeper { parent } => return run::keeper(&parent),
        What::Admin(what) => what,
    };
    match perform(what) {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Broken) => ExitCode::from(3),
        Err(error) => {
            eprintln!("vk-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn perform(what: Served) -> Result<Exit, RunError> {
    match what {
        Served::Serve(arguments) => serve(arguments),
        Served::Trigger { to, file } => {
            let pipeline = json(&read(&file)?, "the pipeline")?;
            print(&to, &Admin::Trigger { pipeline })
        }
        Served::Cancel { to, job, force } => print(&to, &Admin::Cancel { job, force }),
        Served::Retry { to, job } => print(&to, &Admin::Retry { job }),
        Served::Status { to, pipeline, wait } => status(&to, pipeline, wait),
        Served::Trace { to, job, follow } => trace(&to, job, follow),
        Served::Invariants { to } => invariants(&to),
        Served::Expect {
            to,
            job,
            trace_file,
            contains,
        } => {
            let expected = match trace_file {
                Some(path) => {
                    let source = |source| RunError::Read {
                        path: path.clone(),
                        source,
                    };
                    Expected::TraceFile(path.canonicalize().map_err(source)?)
                }
                None => Expected::Contains(contains),
            };
            print(&to, &Admin::Expect { job, expected })
        }
        Served::Inject { to, fault } => {
            let fault = FaultPlan(json(fault.as_bytes(), "the fault")?);
            print(&to, &Admin::Inject { fault })
        }
        Served::Admin { to, command } => print(&to, &json(command.as_bytes(), "the command")?),
    }
}

fn serve(arguments: ServeArgs) -> Result<Exit, RunError> {
    let named: Result<Vec<_>, _> = arguments
        .projects
        .iter()
        .map(|text| project(text))
        .collect();
    let broken = crate::serve::serve(&Options {
        addr: arguments.addr,
        url: arguments.url,
        projects: named?,
        variables: arguments.variables,
        token_file: arguments.token_file,
        state: arguments.state,
        admin: arguments.admin,
        tags: arguments.tags,
        long_poll_ns: arguments.long_poll_ns,
        outside: Vec::new(),
    })?;
    Ok(if broken == 0 {
        Exit::Done
    } else {
        Exit::Broken
    })
}

/// `DIR` or `GROUP/NAME=DIR`.
fn project(text: &str) -> Result<(String, PathBuf), RunError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if let Some((path, dir)) = text.split_once('=').filter(|(path, _)| path.contains('/')) {
        let sound = path.chars().all(plain) && !path.contains("..") && !path.contains(".git/");
        let ends = path.starts_with('/') || path.ends_with('/');
        if sound && !ends {
            return Ok((path.to_owned(), dir.into()));
        }
        return Err(RunError::Project(text.to_owned()));
    }
    let real = Path::new(text).canonicalize();
    let real = real.map_err(|source| RunError::Read {
        path: text.into(),
        source,
    })?;
    let name = real
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let name = name.strip_suffix(".git").unwrap_or(name);
    if name.is_empty() || !name.chars().all(plain) {
        return Err(RunError::Project(text.to_owned()));
    }
    Ok((format!("lab/{name}"), text.into()))
}

fn read(path: &Path) -> Result<Vec<u8>, RunError> {
    let failed = |source| RunError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin()
            .take(MAX_INPUT)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_INPUT)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
    }
    Ok(bytes)
}

fn json<T: serde::de::DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, RunError> {
    serde_json::from_slice(bytes).map_err(|source| RunError::Json {
        what: what.to_owned(),
        source,
    })
}

fn line(value: &Value) -> std::io::Result<()> {
    writeln!(std::io::stdout().lock(), "{value}")
}

/// Whether an answer line is not the last one: a part of a log.
fn is_part(answer: &Value) -> bool {
    answer.get("data").is_some()
}

fn print(to: &Socket, command: &Admin) -> Result<Exit, RunError> {
    admin::call(&to.admin, command, |answer| {
        line(answer)?;
        Ok(!is_part(answer))
    })?;
    Ok(Exit::Done)
}

fn status(to: &Socket, pipeline: Option<u64>, wait: bool) -> Result<Exit, RunError> {
    let mut succeeded = true;
    admin::call(&to.admin, &Admin::Status { pipeline, wait }, |answer| {
        let word = answer
            .pointer("/pipelines/0/status")
            .and_then(Value::as_str);
        succeeded = matches!(word, Some("success" | "skipped"));
        line(answer)?;
        Ok(true)
    })?;
    Ok(if wait && !succeeded {
        Exit::Broken
    } else {
        Exit::Done
    })
}

fn trace(to: &Socket, job: u64, follow: bool) -> Result<Exit, RunError> {
    admin::call(&to.admin, &Admin::Trace { job, follow }, |answer| {
        let Some(data) = answer.get("data").and_then(Value::as_str) else {
            return Ok(true);
        };
        let bytes = STANDARD.decode(data).map_err(std::io::Error::other)?;
        let mut out = std::io::stdout().lock();
        out.write_all(&bytes)?;
        out.flush()?;
        Ok(false)
    })?;
    Ok(Exit::Done)
}

fn invariants(to: &Socket) -> Result<Exit, RunError> {
    let mut count = 0;
    admin::call(&to.admin, &Admin::Invariants, |answer| {
        let list = answer.get("broken").and_then(Value::as_array);
        for broken in list.into_iter().flatten() {
            count += 1;
            line(broken)?;
        }
        Ok(true)
    })?;
    Ok(if count == 0 { Exit::Done } else { Exit::Broken })
}
