//! The driver, as a job process runs it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use vk_driver::{
    ARTIFACT_CAP, ArtifactsAt, Control, Images, JobContext, JobDirs, JobPlan, JobState, NodeName,
};
use vk_hub_proto::job::JobResult;
use vk_image::Store;
use vk_kill::KillPoints;
use vk_node::job::process::{Assignment, Order, RunError, Runner, Running};
use vk_node::job::wire::{CacheCounts, Progress, PullCounts};
use vk_node_core::Stop;
use vk_node_core::ledger::Resource;
use vk_vm::Vmm;

use super::vmm::JobSettings;

/// Controls told to a job that wait to be heard.
const CONTROLS: usize = 8;

/// Runs jobs in VMs.
pub(super) struct Driver;

impl Runner for Driver {
    fn run(
        self: Box<Self>,
        job: Assignment,
        orders: mpsc::Receiver<Order>,
        progress: watch::Sender<Progress>,
    ) -> Running {
        Box::pin(async move { run(job, orders, progress).await.map_err(RunError::from) })
    }
}

async fn run(
    job: Assignment,
    orders: mpsc::Receiver<Order>,
    progress: watch::Sender<Progress>,
) -> anyhow::Result<JobResult> {
    let settings: JobSettings = serde_json::from_value(job.settings.clone())
        .context("the daemon left settings that make no sense")?;
    let vmm = settings.vmm().await.context("cannot start VMs here")?;
    let context = context(job, &settings, vmm)?;
    let store = context.images.store.clone();
    let (control, controls) = mpsc::channel(CONTROLS);
    let (state, states) = watch::channel(JobState::default());
    let ordering = tokio::spawn(pass_orders(orders, control));
    let telling = tokio::spawn(pass_states(states, progress));
    let result = Box::pin(vk_driver::run(context, controls, state)).await;
    ordering.abort();
    // What is too much goes when no job waits for it, this one neither: its process ends after it.
    tokio::task::spawn_blocking(move || {
        if let Err(error) = store.settle() {
            tracing::warn!(%error, "images are left as they are");
        }
    });
    // The last state was told before its sender went.
    let _ = telling.await;
    Ok(result?)
}

fn context(
    job: Assignment,
    settings: &JobSettings,
    vmm: Arc<dyn Vmm>,
) -> anyhow::Result<JobContext> {
    let state = &settings.state_dir;
    let store = Store::open(&state.join("images")).context("cannot open the image store")?;
    let store = store.bounded(settings.image_store.bounds(state));
    Ok(JobContext {
        spec: *job.spec,
        plan: JobPlan {
            cpus: job.plan.cpus,
            mem_mib: job.plan.mem_mib,
            disk_bytes: job.plan.disk_bytes,
            slot: job.plan.slot,
            project_slot: job.plan.project_slot,
            warnings: job.plan.warnings,
        },
        dirs: JobDirs {
            job: job.dir,
            mirrors: state.join("mirrors"),
            bounds: settings.sources.bounds(state),
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
        confinement: settings.confinement_of_git(),
        images: Images {
            store,
            rules: settings.images.rules(settings.image.clone()),
            insecure_registries: settings.insecure_registries.clone(),
        },
        artifacts: ArtifactsAt::GitLab,
        boot_limit: Duration::from_secs(settings.boot_timeout_secs),
        artifact_cap: ARTIFACT_CAP,
        caches: settings.caches.caches_of(job.registry),
        kill: KillPoints::from_env()?,
    })
}

async fn pass_orders(mut orders: mpsc::Receiver<Order>, control: mpsc::Sender<Control>) {
    while let Some(order) = orders.recv().await {
        if control.send(said(order)).await.is_err() {
            return;
        }
    }
}

fn said(order: Order) -> Control {
    match order {
        Order::Grant => Control::Grant,
        Order::Deny(short) => Control::Deny {
            short: match short {
                Resource::Memory => "memory",
                Resource::Disk => "disk",
            }
            .to_owned(),
        },
        Order::Stop(how) => Control::Stop(match how {
            Stop::Graceful => vk_driver::Stop::Graceful,
            Stop::Immediate => vk_driver::Stop::Immediate,
            Stop::Interrupt => vk_driver::Stop::Interrupt,
        }),
    }
}

/// Passes states on until the driver is done; its result is told by the process itself.
async fn pass_states(mut states: watch::Receiver<JobState>, progress: watch::Sender<Progress>) {
    loop {
        let changed = states.changed().await;
        let now = states.borrow_and_update().clone();
        progress.send_modify(|told| *told = told_of(now));
        if changed.is_err() {
            return;
        }
    }
}

fn told_of(state: JobState) -> Progress {
    let counts = state.counts;
    let (vmm, accelerator) = state.vmm.unzip();
    Progress {
        stage: state.stage,
        attempt: state.attempt,
        activity: state.activity,
        guest: state.guest,
        boot_ms: state.boot_ms,
        boots: counts.boots,
        caches: CacheCounts {
            hits: counts.cache_hits,
            misses: counts.cache_misses,
            errors: counts.cache_errors,
        },
        image_pulls: PullCounts {
            done: counts.pulls,
            failed: counts.pulls_failed,
        },
        vmm,
        accelerator,
        output_len: state.output_len,
        result: None,
    }
}
