//! `vk guest …`: the boot bundle, and the hidden stages of a VM's confinement.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use vk_vm::bundle::{Pack, pack};
use vk_vm::confine::{Walled, Walls, enter, execute, hold, run_walled};

use crate::start::run_async;

mod boot;

/// Arguments of `vk guest`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Pack a boot bundle from a kernel, its modules and the agent.
    #[command(after_help = PACK_EXAMPLES)]
    Pack(PackArguments),
    /// Boot a guest once, say how long it took, and power it off.
    #[command(after_help = BOOT_EXAMPLES)]
    Boot(BootArguments),
    /// The stages between a VM's owner and its programs.
    #[command(hide = true)]
    Confine(ConfineArguments),
    /// The keeper of a VM's network.
    #[command(hide = true)]
    Network(NetworkArguments),
}

const PACK_EXAMPLES: &str = "Examples:
  vk guest pack --kernel /boot/vmlinuz-6.12 --modules /lib/modules/6.12 --agent vk-agent --out guest";

const BOOT_EXAMPLES: &str = "Examples:
  sudo -u vk vk guest boot
  vk guest boot --bundle guest --accelerator kvm --times 10";

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
struct BootArguments {
    /// The boot bundle; beside this program or in /usr/share/vk where not given.
    #[arg(long)]
    bundle: Option<PathBuf>,
    /// What the guest runs on; found out by a first boot where not given.
    #[arg(long)]
    accelerator: Option<AcceleratorName>,
    /// Virtual processors.
    #[arg(long, default_value_t = 1)]
    cpus: u32,
    /// Memory in MiB.
    #[arg(long, default_value_t = 512)]
    memory: u64,
    /// How often.
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// How many at a time.
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// Seconds that a guest may take to boot.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// Power off at once and measure QEMU alone: the floor that a job's start is measured against.
    #[arg(long)]
    bare: bool,
    /// The guest's network: none, or a switch with a way out.
    #[arg(long, default_value = "none")]
    net: NetName,
    /// Run without confinement, where this host does not allow it.
    #[arg(long)]
    unconfined: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum NetName {
    None,
    Switch,
}

impl From<NetName> for vk_vm::NetMode {
    fn from(name: NetName) -> Self {
        match name {
            NetName::None => Self::None,
            NetName::Switch => Self::Switch,
        }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum AcceleratorName {
    Kvm,
    Tcg,
}

#[derive(Debug, Args)]
struct ConfineArguments {
    #[command(subcommand)]
    stage: Stage,
    /// Without walls, as the operator said aloud.
    #[arg(long, global = true)]
    open: bool,
}

#[derive(Debug, Args)]
struct NetworkArguments {
    /// The file that the network namespace is mounted on.
    #[arg(long)]
    at: PathBuf,
    #[arg(long)]
    ip: PathBuf,
    #[arg(long)]
    nft: PathBuf,
    #[arg(long)]
    pasta: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Stage {
    Enter,
    Hold,
    Exec,
    Beside(BesideArguments),
}

#[derive(Debug, Args)]
struct BesideArguments {
    /// The walls, as JSON.
    walled: String,
    /// What runs in them.
    program: PathBuf,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Pack(arguments) => run_pack(arguments),
        Command::Boot(arguments) => run_async(boot::run(arguments)),
        Command::Confine(arguments) => run_stage(&arguments),
        Command::Network(arguments) => run_network(arguments),
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

/// Before any thread is started: each lives in the network namespace that it began in.
fn run_network(arguments: NetworkArguments) -> anyhow::Result<ExitCode> {
    let NetworkArguments { at, ip, nft, pasta } = arguments;
    match vk_net::keep(&vk_net::Needs { ip, nft, pasta }, &at) {
        Ok(never) => match never {},
        Err(error) => Err(error.into()),
    }
}

/// A stage runs before any thread is started: a user namespace needs a single-threaded process.
fn run_stage(arguments: &ConfineArguments) -> anyhow::Result<ExitCode> {
    let walls = if arguments.open {
        Walls::Off
    } else {
        Walls::Required
    };
    match &arguments.stage {
        Stage::Enter => enter(walls).context("cannot confine"),
        Stage::Hold => hold(walls)
            .map(|()| ExitCode::SUCCESS)
            .context("cannot hold"),
        Stage::Exec => Err(execute(walls)).context("cannot confine a program"),
        Stage::Beside(arguments) => {
            let walled: Walled = serde_json::from_str(&arguments.walled)
                .context("the walls make no sense to this program")?;
            Ok(run_walled(&walled, &arguments.program, &arguments.args))
        }
    }
}
