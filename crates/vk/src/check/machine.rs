//! Can guests be confined, and do they boot.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use vk_node::config::Config;
use vk_vm::accelerator::{PROBE_LIMIT, probe};
use vk_vm::bundle::{Bundle, find};
use vk_vm::confine::{Confinement, Holder, Walls};
use vk_vm::qemu::QemuSettings;
use vk_vm::{Accelerator, Machine};

use super::{Found, chain};
use crate::node::vmm::JobSettings;

/// The guest that is booted to try.
const MEMORY: u64 = 256 << 20;
/// How long it may take to power off.
const POWER_OFF: Duration = Duration::from_secs(15);

const PACK: &str = "make one with `vk guest pack`, and name it as executor.vm.bundle";

fn bundle_of(config: &Config) -> Option<PathBuf> {
    config.vm.bundle.clone().or_else(find)
}

pub(super) fn bundle(config: &Config) -> Found {
    if config.vm.process_agent.is_some() {
        return Found::skipped("jobs run without VMs: executor.vm.process_agent, for tests");
    }
    let Some(directory) = bundle_of(config) else {
        return Found::fail("there is no boot bundle", PACK);
    };
    let opened = Bundle::open(&directory).and_then(|bundle| bundle.verify().map(|()| bundle));
    match opened {
        Ok(_) => Found::ok(directory.display().to_string()),
        Err(error) => Found::fail(chain(error), PACK),
    }
}

fn walls(config: &Config) -> Confinement {
    Confinement {
        walls: if config.vm.unconfined {
            Walls::Off
        } else {
            Walls::Required
        },
        ..Confinement::default()
    }
}

pub(super) async fn confinement(config: &Config) -> Found {
    let confinement = walls(config);
    let tried = async {
        Holder::start(&confinement).await?.end().await?;
        let scratch = scratch()?;
        let git = vk_driver::try_git(&confinement, scratch.path()).await;
        git.map_err(anyhow::Error::from_boxed)
    };
    match (tried.await, config.vm.unconfined) {
        (Ok(git), false) => Found::ok(format!(
            "namespaces, a view of its own and no capabilities, for guests and for the host's git{}",
            git.map(|version| format!(" ({version})"))
                .unwrap_or_default()
        )),
        (Ok(_), true) => Found::warn(
            "switched off: whoever escapes from a guest, or from git by what a repository holds, \
             is this user on this host",
            "leave executor.vm.unconfined out where the host can confine",
        ),
        (Err(error), _) => Found::fail(
            chain(error),
            "allow this user unprivileged user namespaces (sysctls kernel.unprivileged_userns_clone, \
             user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns), or say \
             executor.vm.unconfined = true aloud",
        ),
    }
}

/// Nothing is remembered of this one: it boots.
pub(super) async fn kvm(config: &Config) -> Found {
    if config.vm.process_agent.is_some() {
        return Found::skipped("jobs run without VMs");
    }
    let Some(bundle) = bundle_of(config) else {
        return Found::skipped("there is no boot bundle to try it with");
    };
    let settings = QemuSettings::new(bundle, walls(config), Accelerator::Tcg);
    let found = async {
        let scratch = scratch()?;
        let memory = scratch.path().join("kvm.json");
        anyhow::Ok(probe(&settings, &memory, scratch.path(), PROBE_LIMIT).await?)
    };
    match found.await {
        Err(error) => Found::fail(chain(error), "see the check before this one"),
        Ok(kvm) => match kvm.warning(&settings.kvm) {
            None => Found::ok("a guest boots under it"),
            // It says what to do as well.
            Some(warning) => Found::warn(warning, ""),
        },
    }
}

pub(super) async fn boot(config: &Config) -> Found {
    let booting = async {
        let scratch = scratch()?;
        let settings = JobSettings::of(config, scratch.path());
        let vmm = settings.vmm().await?;
        let machine = Machine {
            directory: scratch.path().join("vm"),
            cpus: 1,
            memory: MEMORY,
            disks: Vec::new(),
            boot_limit: config.vm.boot_timeout,
        };
        let began = Instant::now();
        let vm = vmm.start(machine).await?;
        let (took, boot) = (began.elapsed(), vm.boot().clone());
        vm.stop(POWER_OFF).await;
        anyhow::Ok(format!(
            "{} under {}: its agent answered after {} ms, kernel {}",
            boot.vmm,
            boot.accelerator,
            took.as_millis(),
            boot.hello.kernel_release
        ))
    };
    match booting.await {
        Ok(what) => Found::ok(what),
        Err(error) => Found::fail(
            chain(error),
            "mend what the checks before this one say; `vk guest boot` boots one and shows more",
        ),
    }
}

fn scratch() -> anyhow::Result<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix("vk-check-").tempdir();
    made.context("cannot make a directory to try a guest in")
}
