//! `vk job …`: one job on this host, with no hub.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use vk_driver::ARTIFACT_CAP;
use vk_hub_proto::job::{CiJob, FailureClass, JobResult, JobSpec};
use vk_image::PullPolicy;

use crate::start::run_async;

mod run;

/// The largest spec that is taken (SPEC-82).
const SPEC_MAX: u64 = 512 << 10;
/// How `vk job run` ends where the job could not be begun.
const NOT_BEGUN: u8 = 2;
/// How it ends where the node failed the job.
const SYSTEM: u8 = 3;

const EXAMPLES: &str = "Examples:
  vk job run job.json --out job-1 --default-image debian:12 --follow
  vk job run job.json --out job-2 --cpus 2 --memory 2048 --local-artifacts artifacts";

/// Arguments of `vk job`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the job of a spec in a VM.
    ///
    /// DIR gets `output` (the trace, as GitLab would have it), `result.json` (written last) and
    /// `stages.jsonl`. The first SIGINT or SIGTERM cancels the job gracefully, the second at once.
    ///
    /// Exit code: 0 the job succeeded; 1 it failed, was cancelled or ran too long; 2 it was not
    /// begun (a bad argument, spec or set-up); 3 the VM, the agent or this host failed it.
    #[command(after_help = EXAMPLES)]
    Run(Box<RunArguments>),
}

/// Arguments of `vk job run`.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The job spec, as a hub sends it (JSON with `"kind": "gitlab_ci"`); `-` for standard input.
    spec: PathBuf,
    /// The job's directory; made where missing, and empty.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Where this host keeps its state: `images`, `mirrors` and what is known of KVM.
    #[arg(long, value_name = "DIR", default_value_os_t = crate::image::default_state_dir())]
    state_dir: PathBuf,
    /// Print the trace while the job runs, also where stdout is no terminal.
    #[arg(long)]
    follow: bool,
    /// Keep artifacts in DIR/<job id>/ instead of uploading them to GitLab, and take those of
    /// dependencies from DIR/<their job id>/ instead of downloading them.
    #[arg(long, value_name = "DIR")]
    local_artifacts: Option<PathBuf>,
    /// Most bytes of one artifact's archive.
    #[arg(long, default_value_t = ARTIFACT_CAP)]
    artifact_cap: u64,
    /// The image of a job that names none.
    #[arg(long, value_name = "IMAGE")]
    default_image: Option<String>,
    /// always, if-not-present or never; may be given again, and is tried in order.
    #[arg(long, value_name = "POLICY", default_values_t = [PullPolicy::IfNotPresent])]
    pull_policy: Vec<PullPolicy>,
    /// A registry (host[:port]) to speak plain HTTP with; may be given again.
    #[arg(long, value_name = "REGISTRY")]
    insecure: Vec<String>,
    /// Virtual processors of the VM.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: u32,
    /// Memory of the VM in MiB.
    #[arg(long, default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(vk_node_core::sizing::MEM_MIB_MIN..))]
    memory: u64,
    /// The VM's writable disk in MiB (sparse).
    #[arg(long, default_value_t = 16 << 10)]
    disk: u64,
    /// The boot bundle; beside this program or in /usr/share/vk where not given.
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// What the guest runs on; found out by a first boot where not given.
    #[arg(long)]
    accelerator: Option<crate::guest::AcceleratorName>,
    /// Seconds that the guest may take to boot.
    #[arg(long, default_value_t = 120)]
    boot_limit: u64,
    /// The guest's network: none, or a switch with a way out.
    #[arg(long, default_value = "none")]
    net: crate::guest::NetName,
    /// Run without confinement, where this host does not allow it.
    #[arg(long)]
    unconfined: bool,
    /// For tests: run the job as a process of this agent, not in a VM.
    #[cfg(feature = "process-vmm")]
    #[arg(long, value_name = "AGENT")]
    process_vmm: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Command::Run(arguments) = arguments.command;
    let begun = read_spec(&arguments.spec).and_then(|spec| {
        make_out(&arguments.out)?;
        Ok(spec)
    });
    let ran = begun.and_then(|spec| run_async(run::run(*arguments, spec)));
    match ran {
        Ok(Ok(result)) => Ok(exit_code(&result)),
        Ok(Err(error)) => Ok(fail(&anyhow::Error::new(error), SYSTEM)),
        Err(error) => Ok(fail(&error, NOT_BEGUN)),
    }
}

fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    // With nowhere to write to there is nothing left to do.
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("vk: {error:#}\n"));
    ExitCode::from(code)
}

fn exit_code(result: &JobResult) -> ExitCode {
    match result.failure {
        None => ExitCode::SUCCESS,
        Some(
            FailureClass::System
            | FailureClass::Interrupted
            | FailureClass::Lost
            | FailureClass::NoCapacity
            | FailureClass::Other,
        ) => ExitCode::from(SYSTEM),
        Some(_) => ExitCode::FAILURE,
    }
}

fn read_spec(path: &Path) -> anyhow::Result<CiJob> {
    let shown = path.display();
    let mut text = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().take(SPEC_MAX + 1).read_to_end(&mut text)
    } else {
        let file = std::fs::File::open(path);
        file.and_then(|file| file.take(SPEC_MAX + 1).read_to_end(&mut text))
    };
    read.with_context(|| format!("cannot read the job spec {shown}"))?;
    if text.len() as u64 > SPEC_MAX {
        bail!("the job spec {shown} has more than {SPEC_MAX} bytes: no hub would take it");
    }
    let spec = serde_json::from_slice(&text);
    let JobSpec::GitlabCi(job) = spec.with_context(|| format!("{shown} is no job spec"))?;
    Ok(*job)
}

/// Makes the job's directory; one that was used holds another job's result.
fn make_out(out: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(out);
    made.with_context(|| format!("cannot make {}", out.display()))?;
    for name in ["result.json", "stages.jsonl", "output"] {
        if out.join(name).exists() {
            bail!(
                "{} holds another job's {name}: give a new directory",
                out.display()
            );
        }
    }
    Ok(())
}

/// Whether the trace is shown while the job runs.
fn is_shown(arguments: &RunArguments) -> bool {
    arguments.follow || std::io::stdout().is_terminal()
}
