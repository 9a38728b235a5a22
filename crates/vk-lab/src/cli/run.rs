//! `vk-lab run` and `vk-lab config`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::run::{self, FleetOptions, Options, Outcome, RunError};

/// Exit codes of `vk-lab run`.
const FAILED: u8 = 1;
const WRONG_INPUT: u8 = 2;
const BROKEN: u8 = 3;
const NOT_RUN: u8 = 5;
/// As shells have it for a command that SIGINT ended.
const INTERRUPTED: u8 = 130;

pub(super) const EXAMPLES: &str = "\
Examples:
  vk-lab run .
  vk-lab run examples/hello --import debian:12=debian.tar
  vk-lab run . --job test --variables ~/web.toml

A hub, a node and a daemon are started in a private directory, from the programs beside this one,
and everything ends with this command, whatever ends it. Of a repository HEAD is run; any other
directory is run as it stands. Images that were not imported are pulled by the node.

Left in the --out directory: jobs/NAME/trace.log, jobs/NAME/artifacts/, result.json, logs/.

Ctrl-C cancels the pipeline in order; a second one ends everything at once.

Exit codes:
  0    the pipeline succeeded; a manual job that nobody named is no failure
  1    it failed
  2    the command line, the project or its .gitlab-ci.yml is wrong; nothing was started
  3    a promise was broken: each is printed
  5    it could not be run: the message says why
  130  cancelled by a signal";

/// When colours are shown.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Colour {
    /// On a terminal, where NO_COLOR is not set.
    Auto,
    /// In any case.
    Always,
    /// In none.
    Never,
}

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// The project's directory.
    dir: PathBuf,
    /// Only this job and what it needs; a manual job is started by that. May be given again.
    #[arg(long = "job", value_name = "NAME")]
    jobs: Vec<String>,
    /// Project variables: TOML, mode 0600, outside the project.
    #[arg(long, value_name = "FILE")]
    variables: Option<PathBuf>,
    /// Where logs and artifacts are left.
    #[arg(long, value_name = "DIR", default_value = ".vk-lab")]
    out: PathBuf,
    /// When colours are shown.
    #[arg(long, value_enum, default_value_t = Colour::Auto)]
    color: Colour,
    #[command(flatten)]
    fleet: FleetArguments,
}

#[derive(Debug, Args)]
pub(super) struct FleetArguments {
    /// An image to import before the first job, once for a file. May be given again.
    #[arg(long, value_name = "NAME=FILE", value_parser = run::import)]
    import: Vec<(String, PathBuf)>,
    /// The image of jobs that name none.
    #[arg(long, value_name = "NAME")]
    image: Option<String>,
    /// Where images are kept from run to run [default: images in --state].
    #[arg(long, value_name = "DIR")]
    image_store: Option<PathBuf>,
    /// What outlives a run [default: ~/.cache/vk-lab].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The guests' boot bundle [default: found by the node].
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// TOML that is put over the node's configuration.
    #[arg(long, value_name = "FILE")]
    node_config: Option<PathBuf>,
    /// Jobs at once [default: as many as there are CPUs, at most 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrent: Option<u16>,
    /// CPUs of a VM [default: 2, or 1 on a host of one].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: Option<u32>,
    /// Memory of a VM.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = run::memory)]
    memory: String,
    /// Disk of a job; it takes what is written to it.
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = run::disk)]
    disk: String,
}

impl From<FleetArguments> for FleetOptions {
    fn from(given: FleetArguments) -> Self {
        Self {
            import: given.import,
            image: given.image,
            image_store: given.image_store,
            state: given.state,
            bundle: given.bundle,
            node_config: given.node_config,
            concurrent: given.concurrent,
            cpus: given.cpus,
            memory: given.memory,
            disk: given.disk,
        }
    }
}

pub(super) fn run(arguments: RunArguments) -> ExitCode {
    let outcome = run::run(&Options {
        dir: arguments.dir,
        jobs: arguments.jobs,
        variables: arguments.variables,
        out: arguments.out,
        fleet: arguments.fleet.into(),
        colour: match arguments.color {
            Colour::Auto => None,
            Colour::Always => Some(true),
            Colour::Never => Some(false),
        },
    });
    match outcome {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(FAILED),
        Ok(Outcome::Broken) => ExitCode::from(BROKEN),
        Ok(Outcome::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(error) => failure(&error),
    }
}

fn failure(error: &RunError) -> ExitCode {
    eprintln!("vk-lab: {error}");
    ExitCode::from(if error.is_of_input() {
        WRONG_INPUT
    } else {
        NOT_RUN
    })
}

#[derive(Debug, Args)]
pub(super) struct ConfigArguments {
    /// The project's directory.
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// As it stands after anchors, references, `extends` and `default`; without it, the file is
    /// only checked.
    #[arg(long)]
    merged: bool,
    /// As the pipeline that `vk-lab trigger` takes, its rules decided.
    #[arg(long, conflicts_with = "merged")]
    pipeline: bool,
    /// Project variables that its rules look at: TOML, mode 0600, outside the project.
    #[arg(long, value_name = "FILE", requires = "pipeline")]
    variables: Option<PathBuf>,
}

pub(super) fn config(arguments: &ConfigArguments) -> ExitCode {
    let text = match arguments.pipeline {
        true => run::pipeline_json(&arguments.dir, arguments.variables.clone()),
        false => run::merged(&arguments.dir),
    };
    match text {
        Ok(text) if arguments.merged || arguments.pipeline => {
            // A reader that goes away has seen what it wanted.
            let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => failure(&error),
    }
}

/// The keeper: see `run::keeper`.
pub(super) fn keeper(parent: &Path) -> ExitCode {
    match run::keeper::keep(parent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the private directory in {}: {error}", parent.display());
            ExitCode::from(NOT_RUN)
        }
    }
}
