//! What a node's jobs run in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use vk_driver::SourceBounds;
use vk_node::config::{Config, Network, Sources};
use vk_vm::accelerator::{PROBE_LIMIT, probe};
use vk_vm::bundle::find;
use vk_vm::confine::{Confinement, Walls};
use vk_vm::qemu::{Qemu, QemuSettings};
use vk_vm::{Accelerator, NetMode, Vmm};

use super::caches::CacheSettings;
use super::images::{ImageSettings, StoreSettings};

/// What the daemon leaves for its job processes: the configuration they were started under, without
/// secrets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobSettings {
    pub(super) state_dir: PathBuf,
    pub(super) image: Option<String>,
    #[serde(default)]
    pub(super) images: ImageSettings,
    #[serde(default)]
    pub(super) image_store: StoreSettings,
    pub(super) insecure_registries: Vec<String>,
    pub(super) boot_timeout_secs: u64,
    #[serde(default)]
    pub(super) caches: CacheSettings,
    #[serde(default)]
    pub(super) sources: SourceSettings,
    /// Left out by a daemon of before there were networks.
    #[serde(default)]
    network: NetMode,
    bundle: Option<PathBuf>,
    unconfined: bool,
    process_agent: Option<PathBuf>,
}

/// What of the host jobs' sources may take, as configured.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SourceSettings {
    max_total: Option<u64>,
    max_project: Option<u64>,
    max_git_memory: Option<u64>,
}

impl SourceSettings {
    pub(crate) fn of(config: &Config) -> SourceSettings {
        let Sources {
            max_total,
            max_project,
            max_git_memory,
        } = config.sources;
        SourceSettings {
            max_total,
            max_project,
            max_git_memory,
        }
    }

    /// Where nothing is configured: by the disk that the state lies on, and the host's memory.
    pub(crate) fn bounds(self, state_dir: &Path) -> SourceBounds {
        SourceBounds::of_disk(state_dir, self.max_total, self.max_project)
            .git_memory(self.max_git_memory)
    }
}

impl JobSettings {
    /// As configured; `state_dir` as it was opened.
    pub(crate) fn of(config: &Config, state_dir: &Path) -> JobSettings {
        JobSettings {
            state_dir: state_dir.to_owned(),
            image: config.image.clone(),
            images: ImageSettings::of(&config.images),
            image_store: StoreSettings::of(config.image_store),
            insecure_registries: config.insecure_registries.clone(),
            boot_timeout_secs: config.vm.boot_timeout.as_secs(),
            caches: CacheSettings::of(config),
            sources: SourceSettings::of(config),
            network: match config.vm.network {
                Network::None => NetMode::None,
                Network::Switch => NetMode::Switch,
            },
            bundle: config.vm.bundle.clone(),
            unconfined: config.vm.unconfined,
            process_agent: config.vm.process_agent.clone(),
        }
    }

    fn confinement(&self) -> Confinement {
        let walls = if self.unconfined {
            Walls::Off
        } else {
            Walls::Required
        };
        Confinement {
            walls,
            ..Confinement::default()
        }
    }

    /// Walls around the host's git: the VMs', and none where jobs run without a VM, for tests.
    pub(crate) fn confinement_of_git(&self) -> Confinement {
        let mut confinement = self.confinement();
        if self.process_agent.is_some() {
            confinement.walls = Walls::Off;
        }
        confinement
    }

    /// Makes ready to start VMs. What is found out about KVM is remembered in the state directory,
    /// so that the daemon's start asks and its jobs do not.
    pub(crate) async fn vmm(&self) -> anyhow::Result<Arc<dyn Vmm>> {
        let confinement = self.confinement();
        if let Some(agent) = &self.process_agent {
            anyhow::ensure!(
                self.network == NetMode::None,
                "net.mode = \"switch\" is for VMs, and executor.vm.process_agent runs jobs without: \
                 leave one of them out"
            );
            return self.process_vmm(agent, confinement);
        }
        let bundle = match &self.bundle {
            Some(bundle) => bundle.clone(),
            None => find().context(
                "no boot bundle: name it as executor.vm.bundle, or make one with `vk guest pack`",
            )?,
        };
        let mut settings = QemuSettings::new(bundle, confinement, Accelerator::Tcg);
        let scratch = tempfile::Builder::new().prefix("vk-probe-").tempdir()?;
        let memory = self.state_dir.join("kvm.json");
        let kvm = probe(&settings, &memory, scratch.path(), PROBE_LIMIT).await?;
        if let Some(warning) = kvm.warning(&settings.kvm) {
            tracing::warn!("{warning}");
        }
        settings.accelerator = kvm.accelerator();
        settings.network = self.network;
        Ok(Arc::new(Qemu::prepare(settings).await?))
    }

    #[cfg(feature = "process-vmm")]
    fn process_vmm(&self, agent: &Path, confinement: Confinement) -> anyhow::Result<Arc<dyn Vmm>> {
        use vk_vm::process::{ProcessSettings, ProcessVmm, allowed_by_environment};
        let settings = ProcessSettings {
            agent: agent.to_owned(),
            confinement,
            cache: self.state_dir.join("extracted"),
            allowed: allowed_by_environment(),
        };
        Ok(Arc::new(ProcessVmm::prepare(settings)?))
    }

    #[cfg(not(feature = "process-vmm"))]
    #[allow(clippy::needless_pass_by_value, reason = "as the other build's")]
    fn process_vmm(&self, _: &Path, _: Confinement) -> anyhow::Result<Arc<dyn Vmm>> {
        anyhow::bail!(
            "executor.vm.process_agent is for tests alone, and this program was built without \
             process-vmm: leave it out"
        )
    }
}
