//! The job, its signals and its trace.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use vk_driver::{
    ArtifactsAt, Caches, Control, DriverError, Images, JobContext, JobDirs, JobPlan, JobState,
    NodeName, SourceBounds, Stop,
};
use vk_hub_proto::job::{CiJob, JobResult};
use vk_image::{Bounds, Rules, Store};
use vk_vm::accelerator::{PROBE_LIMIT, probe};
use vk_vm::bundle::find;
use vk_vm::confine::{Confinement, Walls};
use vk_vm::qemu::{Qemu, QemuSettings};
use vk_vm::{Accelerator, Vmm};

use super::{RunArguments, is_shown};
use crate::guest::AcceleratorName;
use crate::owner::refuse_other_users;

/// Controls told to a job that waits to be heard.
const CONTROLS: usize = 8;

/// Runs it. The outer error: it was not begun.
pub(super) async fn run(
    arguments: RunArguments,
    spec: CiJob,
) -> anyhow::Result<Result<JobResult, DriverError>> {
    let shown = is_shown(&arguments);
    let context = prepare(&arguments, spec).await?;
    let output = context.dirs.job.join("output");
    let (control, controls) = mpsc::channel(CONTROLS);
    let (state, watching) = watch::channel(JobState::default());
    control
        .send(Control::Grant)
        .await
        .context("cannot begin the job")?;
    let signals = tokio::spawn(pass_signals(control)?);
    let follower = shown.then(|| tokio::task::spawn(follow(output, watching)));
    let result = Box::pin(vk_driver::run(context, controls, state)).await;
    signals.abort();
    if let Some(follower) = follower {
        follower
            .await
            .context("the trace was not shown to its end")?;
    }
    Ok(result)
}

async fn prepare(arguments: &RunArguments, spec: CiJob) -> anyhow::Result<JobContext> {
    let state = std::path::absolute(&arguments.state_dir)?;
    let job = std::path::absolute(&arguments.out)?;
    refuse_other_users(&state, "vk job run …")?;
    let store = Store::open(&state.join("images"))
        .context("cannot open the image store; another place is chosen with --state-dir")?;
    let store = store.bounded(Bounds::of_disk(&state, None, None));
    let vmm = vmm(arguments, &state)
        .await
        .context("cannot start VMs here")?;
    let artifacts = match &arguments.local_artifacts {
        Some(dir) => ArtifactsAt::Directory(std::path::absolute(dir)?),
        None => ArtifactsAt::GitLab,
    };
    Ok(JobContext {
        spec,
        plan: JobPlan {
            cpus: arguments.cpus,
            mem_mib: arguments.memory,
            disk_bytes: arguments.disk.saturating_mul(1 << 20),
            slot: 0,
            project_slot: 0,
            warnings: Vec::new(),
        },
        dirs: JobDirs {
            job,
            mirrors: state.join("mirrors"),
            bounds: SourceBounds::of_disk(&state, None, None),
        },
        node: NodeName {
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: "release".to_owned(),
        },
        vmm,
        confinement: confinement_of_git(arguments),
        images: Images {
            store,
            rules: Rules {
                default_image: arguments.default_image.clone(),
                pull_policy: arguments.pull_policy.clone(),
                allowed_pull_policies: vec![
                    vk_image::PullPolicy::Always,
                    vk_image::PullPolicy::IfNotPresent,
                    vk_image::PullPolicy::Never,
                ],
                ..Rules::default()
            },
            insecure_registries: arguments.insecure.clone(),
        },
        artifacts,
        boot_limit: Duration::from_secs(arguments.boot_limit),
        artifact_cap: arguments.artifact_cap,
        caches: Caches::default(),
        kill: vk_kill::KillPoints::from_env()?,
    })
}

fn confinement(arguments: &RunArguments) -> Confinement {
    let walls = if arguments.unconfined {
        Walls::Off
    } else {
        Walls::Required
    };
    Confinement {
        walls,
        ..Confinement::default()
    }
}

/// The VMs' walls, and none where the job runs without a VM, for tests.
fn confinement_of_git(arguments: &RunArguments) -> Confinement {
    let confinement = confinement(arguments);
    #[cfg(feature = "process-vmm")]
    if arguments.process_vmm.is_some() {
        let walls = Walls::Off;
        return Confinement {
            walls,
            ..confinement
        };
    }
    confinement
}

async fn vmm(arguments: &RunArguments, state: &Path) -> anyhow::Result<Arc<dyn Vmm>> {
    let confinement = confinement(arguments);
    #[cfg(feature = "process-vmm")]
    if let Some(agent) = &arguments.process_vmm {
        anyhow::ensure!(
            vk_vm::NetMode::from(arguments.net) == vk_vm::NetMode::None,
            "--net switch is for VMs, and --process-vmm runs the job without one"
        );
        use vk_vm::process::{ProcessSettings, ProcessVmm, allowed_by_environment};
        let settings = ProcessSettings {
            agent: std::path::absolute(agent)?,
            confinement,
            cache: state.join("extracted"),
            allowed: allowed_by_environment(),
        };
        return Ok(Arc::new(ProcessVmm::prepare(settings)?));
    }
    let bundle = match &arguments.bundle {
        Some(bundle) => std::path::absolute(bundle)?,
        None => {
            find().context("no boot bundle: give --bundle, or make one with `vk guest pack`")?
        }
    };
    let mut settings = QemuSettings::new(bundle, confinement, Accelerator::Tcg);
    settings.accelerator = match arguments.accelerator {
        Some(AcceleratorName::Kvm) => Accelerator::Kvm,
        Some(AcceleratorName::Tcg) => Accelerator::Tcg,
        None => {
            let scratch = tempfile::Builder::new().prefix("vk-probe-").tempdir()?;
            let memory = state.join("kvm.json");
            let kvm = probe(&settings, &memory, scratch.path(), PROBE_LIMIT).await?;
            if let Some(warning) = kvm.warning(&settings.kvm) {
                tracing::warn!("{warning}");
            }
            kvm.accelerator()
        }
    };
    settings.network = arguments.net.into();
    Ok(Arc::new(Qemu::prepare(settings).await?))
}

/// The first signal cancels gracefully, the second at once.
fn pass_signals(control: mpsc::Sender<Control>) -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        for how in [Stop::Graceful, Stop::Immediate] {
            either(&mut interrupt, &mut terminate).await;
            if control.send(Control::Stop(how)).await.is_err() {
                return;
            }
        }
        // Kept open: the job goes on until it ends.
        control.closed().await;
    })
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}

/// Copies the trace to stdout as it grows, to the job's end.
async fn follow(path: PathBuf, mut state: watch::Receiver<JobState>) {
    let mut shown = 0;
    loop {
        let len = state.borrow_and_update().output_len;
        if len > shown && copy(&path, shown, len).is_err() {
            return;
        }
        shown = len.max(shown);
        if state.changed().await.is_err() {
            return;
        }
    }
}

fn copy(path: &Path, from: u64, to: u64) -> std::io::Result<()> {
    let mut file = std::fs::File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut out = std::io::stdout().lock();
    std::io::copy(&mut file.take(to - from), &mut out)?;
    out.flush()
}
