//! `vk guest boot`: does a guest come up here, and how fast.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use vk_vm::accelerator::{PROBE_LIMIT, probe};
use vk_vm::bundle::find;
use vk_vm::confine::{Confinement, Walls};
use vk_vm::qemu::{Qemu, QemuSettings};
use vk_vm::{Accelerator, Machine, Vmm};

use super::{AcceleratorName, BootArguments};

/// How long a guest may take to power off before it is killed.
const POWER_OFF: Duration = Duration::from_secs(15);

pub(super) async fn run(arguments: BootArguments) -> anyhow::Result<ExitCode> {
    let directory = tempfile::Builder::new().prefix("vk-boot-").tempdir()?;
    let qemu = Arc::new(prepare(&arguments, directory.path()).await?);
    let seats = Arc::new(Semaphore::new(arguments.at_once.max(1)));
    let mut boots = JoinSet::new();
    for number in 0..arguments.times {
        let machine = Machine {
            directory: directory.path().join(format!("vm-{number}")),
            cpus: arguments.cpus,
            memory: arguments.memory << 20,
            disks: Vec::new(),
            boot_limit: Duration::from_secs(arguments.limit),
        };
        let (qemu, seats) = (Arc::clone(&qemu), Arc::clone(&seats));
        let bare = arguments.bare;
        boots.spawn(async move {
            let _seat = seats.acquire().await;
            let booted = if bare {
                bare_boot(&qemu, &machine).await
            } else {
                boot(&qemu, machine).await
            };
            booted.with_context(|| format!("boot {number}"))
        });
    }
    let mut failed = false;
    while let Some(booted) = boots.join_next().await {
        match booted? {
            Ok(line) => println!("{line}"),
            Err(error) => {
                failed = true;
                println!("failed: {error:#}");
            }
        }
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

async fn prepare(arguments: &BootArguments, directory: &Path) -> anyhow::Result<Qemu> {
    let bundle = match &arguments.bundle {
        Some(bundle) => std::path::absolute(bundle)?,
        None => {
            find().context("no boot bundle: give --bundle, or make one with `vk guest pack`")?
        }
    };
    let walls = if arguments.unconfined {
        Walls::Off
    } else {
        Walls::Required
    };
    let confinement = Confinement {
        walls,
        ..Confinement::default()
    };
    let mut settings = QemuSettings::new(bundle, confinement, Accelerator::Tcg);
    settings.accelerator = match arguments.accelerator {
        Some(AcceleratorName::Kvm) => Accelerator::Kvm,
        Some(AcceleratorName::Tcg) => Accelerator::Tcg,
        None => {
            let memory: PathBuf = directory.join("kvm.json");
            let kvm = probe(&settings, &memory, directory, PROBE_LIMIT).await?;
            if let Some(warning) = kvm.warning(&settings.kvm) {
                tracing::warn!("{warning}");
            }
            kvm.accelerator()
        }
    };
    settings.network = arguments.net.into();
    Ok(Qemu::prepare(settings).await?)
}

async fn boot(qemu: &Qemu, machine: Machine) -> anyhow::Result<String> {
    let vm = qemu.start(machine).await?;
    let boot = vm.boot().clone();
    let stopped = vm.stop(POWER_OFF).await;
    let usage = stopped.usage.unwrap_or_default();
    Ok(format!(
        "{} under {}: {} ms to the agent's hello, {} ms of the guest's own; kernel {}, agent {}; \
         {} ms of CPU, {} MiB at most; {}",
        boot.vmm,
        boot.accelerator,
        boot.to_hello.as_millis(),
        boot.hello.uptime_ms,
        boot.hello.kernel_release,
        boot.hello.agent_version,
        usage.cpu_ms,
        usage.peak_mem_bytes >> 20,
        stopped.death,
    ))
}

async fn bare_boot(qemu: &Qemu, machine: &Machine) -> anyhow::Result<String> {
    let took = qemu.bare_boot(machine).await?;
    let accelerator = qemu.accelerator();
    Ok(format!(
        "qemu under {accelerator}: {} ms from its start to its exit",
        took.as_millis()
    ))
}
