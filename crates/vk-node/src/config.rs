//! The node's configuration: TOML, unknown keys refused with their line.

mod images;
mod place;
mod registry;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use vk_exporter::Listen;
use vk_hub_proto::Name;
use vk_hub_proto::hex::Hex;
use vk_hub_proto::limit::INVENTORY_LIST;
use vk_node_core::sizing::Sizes;

pub use self::images::{ImageStore, Images};
use self::images::{ImagesTable, OneOrMore, image_store, images};
pub use self::registry::Registry;
use self::registry::{RegistryTable, registry};
use crate::size::Size;

/// Longest time that an image built here counts as at hand.
const IMAGE_IDLE_MAX_SECS: u64 = 365 * 86_400;

/// The node's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it was read from; none where every key has its default.
    pub file: Option<PathBuf>,
    /// Where the node keeps everything.
    pub state_dir: PathBuf,
    /// Whether `[node] runner` says that no gitlab-runner of the host's own runs jobs (PLACE-20);
    /// where it says nothing, the host is looked at.
    pub no_runner: bool,
    /// The labels it declares (PLACE-05).
    pub labels: Vec<Name>,
    /// The image of a job that names none.
    pub image: Option<String>,
    /// Which images jobs may have, and when registries are asked for them.
    pub images: Images,
    /// What of the disk images may take.
    pub image_store: ImageStore,
    /// Registries that are spoken to in plain HTTP.
    pub insecure_registries: Vec<String>,
    /// Where caches are kept; without it there are none.
    pub registry: Option<Registry>,
    /// VMs.
    pub vm: Vm,
    /// What may be granted.
    pub schedule: Schedule,
    /// What of the disk jobs' sources may take.
    pub sources: Sources,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<Listen>,
    /// SHA-256 of the file, in hexadecimal digits.
    pub hash: String,
}

/// What of the host mirrors and LFS objects may take; by its disk and memory where not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// All of them, in bytes.
    pub max_total: Option<u64>,
    /// One project's, in bytes.
    pub max_project: Option<u64>,
    /// Memory of one process of git, in bytes.
    pub max_git_memory: Option<u64>,
}

/// A job's VM.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Default and largest sizes.
    pub sizes: Sizes,
    /// The boot bundle; found by itself where none is named.
    pub bundle: Option<PathBuf>,
    /// How long a guest may take to boot.
    pub boot_timeout: Duration,
    /// Jobs run even where VMs cannot be confined.
    pub unconfined: bool,
    /// What network they have.
    pub network: Network,
    /// The agent of the process stand-in for VMs; only programs built for tests take it.
    pub process_agent: Option<PathBuf>,
}

/// What network jobs have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// None.
    #[default]
    None,
    /// A switch a job, with a way out and every address of the host denied.
    Switch,
}

/// What the ledger may grant.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Memory in all, in MiB; measured where not set.
    pub mem_mib: Option<u64>,
    /// Disk in all, in bytes; measured where not set.
    pub disk_bytes: Option<u64>,
    /// Whether disk bounds anything (`disk_admission`).
    pub disk_admission: bool,
    /// Reservations and unfinished jobs at most (DISP-33).
    pub max_concurrency: Option<u32>,
    /// Whether past runs of a job say how much memory is set aside for it (ADM-33).
    pub from_history: bool,
    /// How long a job may wait for what exceeds its reservation (ADM-34).
    pub wait_timeout: Duration,
    /// How long an image that was built here counts as at hand.
    pub image_cache_idle: Duration,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file does not parse: the message has line and column.
    #[error("{}: {why}", path.display())]
    Parse {
        /// Which.
        path: PathBuf,
        /// What, and where.
        why: String,
    },
    /// A value is not possible.
    #[error("{}{}: {key}: {must}", path.display(), at(*line))]
    Value {
        /// Which file.
        path: PathBuf,
        /// The key's line, from 1, where the file has the key.
        line: Option<usize>,
        /// Which key.
        key: &'static str,
        /// What is wrong, and what it must be.
        must: String,
    },
}

fn at(line: Option<usize>) -> String {
    line.map(|line| format!(":{line}")).unwrap_or_default()
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    state_dir: Option<PathBuf>,
    node: NodeTable,
    net: NetTable,
    registry: RegistryTable,
    executor: ExecutorTable,
    images: ImagesTable,
    sources: SourcesTable,
    metrics: Option<MetricsTable>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SourcesTable {
    max_total: Option<Size>,
    max_project: Option<Size>,
    max_git_memory: Option<Size>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsTable {
    listen: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NodeTable {
    runner: Option<String>,
    labels: Vec<Name>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NetTable {
    mode: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ExecutorTable {
    image: Option<String>,
    pull_policy: Option<OneOrMore>,
    allowed_pull_policies: Option<OneOrMore>,
    allowed_images: Vec<String>,
    allowed_users: Vec<String>,
    vm: VmTable,
    schedule: ScheduleTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct VmTable {
    cpus: Option<u32>,
    mem: Option<Size>,
    max_cpus: Option<u32>,
    max_mem: Option<Size>,
    bundle: Option<PathBuf>,
    boot_timeout_secs: Option<u64>,
    unconfined: bool,
    process_agent: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ScheduleTable {
    mem_budget: Option<Size>,
    disk_budget: Option<Size>,
    disk_admission: Option<bool>,
    from_history: bool,
    max_concurrency: Option<u32>,
    wait_timeout_secs: Option<u64>,
    image_cache_idle_secs: Option<u64>,
}

/// Files that are looked for where none is named.
#[must_use]
pub fn usual_files() -> Vec<PathBuf> {
    let named = std::env::var_os("VK_CONFIG").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".config/vk/config.toml"));
    let system = PathBuf::from("/etc/vk/config.toml");
    // A file that was named must be there.
    match named {
        Some(named) => vec![named],
        None => home
            .into_iter()
            .chain([system])
            .filter(|file| file.exists())
            .collect(),
    }
}

impl Config {
    /// Reads the named file, else the first of [`usual_files`], else takes the defaults.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(named: Option<&Path>) -> Result<Config, ConfigError> {
        let file = match named {
            Some(path) => Some(path.to_owned()),
            None => usual_files().into_iter().next(),
        };
        let Some(path) = file else {
            return Config::parse("", Path::new("vk.toml"), None);
        };
        let failed = |source| ConfigError::Read {
            path: path.clone(),
            source,
        };
        let path = std::fs::canonicalize(&path).map_err(failed)?;
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        Config::parse(&text, &path, path.parent())
    }

    /// Relative paths are taken from `base`.
    fn parse(text: &str, path: &Path, base: Option<&Path>) -> Result<Config, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| ConfigError::Parse {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
        let wrong = |key, must: &str| ConfigError::Value {
            path: path.to_owned(),
            line: place::line(text, key),
            key,
            must: must.to_owned(),
        };
        let network = match file.net.mode.as_deref() {
            None | Some("none") => Network::None,
            Some("switch") => Network::Switch,
            Some(mode) => {
                let must = format!("{mode:?} is no mode: it must be \"none\" or \"switch\"");
                return Err(wrong("net.mode", &must));
            }
        };
        let no_runner = match file.node.runner.as_deref() {
            None => false,
            Some("none") => true,
            Some(other) => {
                let must = format!(
                    "{other:?} is no choice: set it to \"none\" where this host takes jobs of the \
                     hub, or leave it out to have the host looked at"
                );
                return Err(wrong("node.runner", &must));
            }
        };
        if file.node.labels.len() > INVENTORY_LIST {
            let must = "there are at most 64 labels: leave some out";
            return Err(wrong("node.labels", must));
        }
        let absolute = |path: PathBuf| base.map_or_else(|| path.clone(), |base| base.join(&path));
        let schedule = schedule(&file.executor.schedule).map_err(|(key, must)| wrong(key, must))?;
        let sizes = sizes(&file.executor.vm).map_err(|(key, must)| wrong(key, must))?;
        let boot_secs = file.executor.vm.boot_timeout_secs.unwrap_or(120);
        if !(1..=3600).contains(&boot_secs) {
            let must = "it must be 1 to 3600 seconds";
            return Err(wrong("executor.vm.boot_timeout_secs", must));
        }
        let registry =
            registry(&file.registry, absolute).map_err(|(key, must)| wrong(key, &must))?;
        let images = images(&file.executor).map_err(|(key, must)| wrong(key, &must))?;
        let listen = |table: &MetricsTable| table.listen.parse::<Listen>();
        let metrics = file.metrics.as_ref().map(listen).transpose();
        let metrics = metrics.map_err(|error| wrong("metrics.listen", &error.to_string()))?;
        Ok(Config {
            file: base.map(|_| path.to_owned()),
            state_dir: file
                .state_dir
                .map_or_else(|| PathBuf::from("/var/lib/vk"), absolute),
            no_runner,
            labels: file.node.labels,
            image: file.executor.image.filter(|image| !image.is_empty()),
            images,
            image_store: image_store(&file.images).map_err(|(key, must)| wrong(key, must))?,
            insecure_registries: file.registry.insecure,
            registry,
            vm: Vm {
                sizes,
                bundle: file.executor.vm.bundle.map(absolute),
                network,
                process_agent: file.executor.vm.process_agent.map(absolute),
                boot_timeout: Duration::from_secs(boot_secs),
                unconfined: file.executor.vm.unconfined,
            },
            schedule,
            sources: sources(&file.sources).map_err(|(key, must)| wrong(key, must))?,
            metrics,
            hash: hash(text),
        })
    }
}

fn hash(text: &str) -> String {
    use aws_lc_rs::digest::{SHA256, digest};
    let hash = digest(&SHA256, text.as_bytes());
    <[u8; 32]>::try_from(hash.as_ref()).map_or_else(|_| String::new(), |hash| Hex(hash).to_string())
}

type Wrong = (&'static str, &'static str);

fn sizes(table: &VmTable) -> Result<Sizes, Wrong> {
    let default = Sizes::default();
    let cpus = table.cpus.unwrap_or(default.cpus);
    let mem_mib = table.mem.map_or(default.mem_mib, Size::mib);
    let max_cpus = table.max_cpus.unwrap_or(cpus);
    let max_mem_mib = table.max_mem.map_or(mem_mib, Size::mib);
    if !(1..=255).contains(&cpus) || max_cpus > 255 {
        return Err(("executor.vm.cpus", "a VM has 1 to 255 CPUs"));
    }
    if max_cpus < cpus {
        return Err(("executor.vm.max_cpus", "it is less than cpus"));
    }
    if mem_mib < vk_node_core::sizing::MEM_MIB_MIN {
        return Err(("executor.vm.mem", "a VM has at least 128M"));
    }
    if max_mem_mib < mem_mib {
        return Err(("executor.vm.max_mem", "it is less than mem"));
    }
    Ok(Sizes {
        cpus,
        mem_mib,
        max_cpus,
        max_mem_mib,
    })
}

/// The least that a project may have: less is no repository.
const SOURCES_MIN: u64 = 16 << 20;
/// With less, git does not read an ordinary one.
const GIT_MEMORY_MIN: u64 = 256 << 20;

fn sources(table: &SourcesTable) -> Result<Sources, Wrong> {
    let (max_total, max_project) = (
        table.max_total.map(Size::bytes),
        table.max_project.map(Size::bytes),
    );
    let least = "it must be at least 16M";
    if max_total.is_some_and(|bytes| bytes < SOURCES_MIN) {
        return Err(("sources.max_total", least));
    }
    if max_project.is_some_and(|bytes| bytes < SOURCES_MIN) {
        return Err(("sources.max_project", least));
    }
    if max_project > max_total && max_total.is_some() {
        return Err(("sources.max_project", "it is more than max_total"));
    }
    let max_git_memory = table.max_git_memory.map(Size::bytes);
    if max_git_memory.is_some_and(|bytes| bytes < GIT_MEMORY_MIN) {
        return Err(("sources.max_git_memory", "it must be at least 256M"));
    }
    Ok(Sources {
        max_total,
        max_project,
        max_git_memory,
    })
}

fn schedule(table: &ScheduleTable) -> Result<Schedule, Wrong> {
    if table.max_concurrency == Some(0) {
        let must = "0 would take no job at all: leave it out for no limit";
        return Err(("executor.schedule.max_concurrency", must));
    }
    let idle_secs = table.image_cache_idle_secs.unwrap_or(1800);
    if idle_secs > IMAGE_IDLE_MAX_SECS {
        let must = "it may be at most 31536000, a year";
        return Err(("executor.schedule.image_cache_idle_secs", must));
    }
    Ok(Schedule {
        mem_mib: table.mem_budget.map(Size::mib),
        disk_bytes: table.disk_budget.map(Size::bytes),
        from_history: table.from_history,
        disk_admission: table.disk_admission.unwrap_or(true),
        max_concurrency: table.max_concurrency,
        wait_timeout: Duration::from_secs(table.wait_timeout_secs.unwrap_or(600)),
        image_cache_idle: Duration::from_secs(idle_secs),
    })
}

#[cfg(test)]
mod tests;
