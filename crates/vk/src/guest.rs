//! `vk guest …`: the boot bundle, and the hidden stages of a VM's confinement.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use vk_vm::bundle::{Pack, pack};
use vk_vm::confine::{Walls, enter, execute, hold};

/// Arguments of `vk guest`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Pack a boot bundle from a kernel, its modules and the agent.
    Pack(PackArguments),
    /// The stages between a VM's owner and its programs.
    #[command(hide = true)]
    Confine(ConfineArguments),
}

#[derive(Debug, Args)]
struct PackArguments {
    /// The kernel's boot image, such as /boot/vmlinuz-RELEASE.
    #[arg(long)]
    kernel: PathBuf,
    /// The kernel's modules with depmod's indices, such as /lib/modules/RELEASE.
    #[arg(long)]
    modules: PathBuf,
    /// The agent: the static program vk-agent.
    #[arg(long)]
    agent: PathBuf,
    /// The directory to make; a bundle that is there is replaced.
    #[arg(long)]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct ConfineArguments {
    #[command(subcommand)]
    stage: Stage,
    /// Without walls, as the operator said aloud.
    #[arg(long, global = true)]
    open: bool,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Stage {
    Enter,
    Hold,
    Exec,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Pack(arguments) => run_pack(arguments),
        Command::Confine(arguments) => run_stage(&arguments),
    }
}

fn run_pack(arguments: PackArguments) -> anyhow::Result<ExitCode> {
    let PackArguments {
        kernel,
        modules,
        agent,
        out,
    } = arguments;
    let bundle = pack(&Pack {
        kernel,
        modules,
        agent,
        out: out.clone(),
    })
    .with_context(|| format!("cannot pack {}", out.display()))?;
    let manifest = bundle.manifest();
    println!(
        "{}: kernel {} ({:?}), {} modules, agent {}",
        out.display(),
        manifest.kernel_release,
        manifest.kernel_form,
        manifest.modules.len(),
        manifest.agent.sha256,
    );
    Ok(ExitCode::SUCCESS)
}

/// A stage runs before any thread is started: a user namespace needs a single-threaded process.
fn run_stage(arguments: &ConfineArguments) -> anyhow::Result<ExitCode> {
    let walls = if arguments.open {
        Walls::Off
    } else {
        Walls::Required
    };
    match arguments.stage {
        Stage::Enter => enter(walls).context("cannot confine"),
        Stage::Hold => hold(walls)
            .map(|()| ExitCode::SUCCESS)
            .context("cannot hold"),
        Stage::Exec => Err(execute(walls)).context("cannot confine a program"),
    }
}
