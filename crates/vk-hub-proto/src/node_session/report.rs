//! What a node tells of itself: inventory, heartbeat, report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::steering::{Acquisition, DesiredState};
use crate::Name;
use crate::hex::Hex;

/// What the host is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// Display text.
    pub hostname: String,
    /// CPUs, memory, and what was checked.
    pub hardware: Hardware,
    /// Where jobs and checkouts lie.
    pub storage: Vec<StorageInfo>,
    /// What is installed.
    pub versions: Versions,
    /// The host's own gitlab-runner; written as `null` where there is none.
    #[serde(default)]
    pub runner: Option<RunnerInfo>,
    /// Declared in the node's configuration; an older node sends none (PLACE-05).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Name>,
    /// Scheme, host and port of the node's registry (REG-22).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_url: Option<String>,
}

/// The host's hardware.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// CPUs; 0 counts as 1 (PLACE-41).
    pub cpus: u32,
    /// Their model.
    #[serde(default)]
    pub cpu_model: Option<String>,
    /// Memory in MiB.
    #[serde(default)]
    pub mem_total_mib: Option<u64>,
    /// NUMA nodes.
    #[serde(default)]
    pub memory_nodes: Vec<MemoryNode>,
    /// What the node checked of its host.
    #[serde(default)]
    pub checks: Vec<Check>,
}

/// One NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryNode {
    /// The kernel's number.
    pub id: u32,
    /// Its CPUs.
    pub cpus: u32,
    /// Its memory in MiB.
    pub mem_total_mib: u64,
}

/// One thing the node checked of its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What.
    pub name: String,
    /// Whether it holds.
    pub ok: bool,
    /// In words.
    pub detail: String,
}

/// A file system the node uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageInfo {
    /// What for.
    pub role: StorageRole,
    /// Where.
    pub path: String,
    /// `major:minor`.
    pub device: String,
    /// Its size.
    pub size_bytes: u64,
    /// Whether it is memory.
    pub tmpfs: bool,
    /// As declared.
    #[serde(default)]
    pub speed: Option<StorageSpeed>,
}

/// What a file system is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageRole {
    /// Jobs' disks and spools.
    Jobs,
    /// Git mirrors and trees.
    Checkouts,
    /// A role this version does not know.
    #[serde(other)]
    Other,
}

/// How fast a file system was declared to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageSpeed {
    /// Fast.
    Fast,
    /// Slow; also how an unknown word is read.
    #[serde(other)]
    Slow,
}

/// What is installed on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The `vk` program.
    pub vk: String,
    /// The guests' kernel.
    #[serde(default)]
    pub guest_kernel: Option<String>,
    /// Digest of the node's configuration.
    pub config_hash: String,
    /// Digest of the running program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vk_sha256: Option<Hex<32>>,
}

/// The host's own gitlab-runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerInfo {
    /// Its configuration file.
    pub config: String,
    /// Its `concurrent`.
    #[serde(default)]
    pub concurrent: Option<u32>,
    /// Its runners' names.
    #[serde(default)]
    pub runners: Vec<String>,
}

/// What changes all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The ledger; `null` where there is none.
    #[serde(default)]
    pub admission: Option<Admission>,
    /// What the own runner's `concurrent` should be.
    #[serde(default)]
    pub desired_concurrency: Option<u32>,
    /// Memory the kernel calls available, in MiB.
    #[serde(default)]
    pub mem_available_mib: Option<u64>,
    /// Room on each file system.
    #[serde(default)]
    pub storage: Vec<StorageFree>,
    /// Memory of each workload.
    #[serde(default)]
    pub workload_mem_bytes: BTreeMap<String, u64>,
    /// The 1-minute load average in hundredths; an older node sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load1_hundredths: Option<u32>,
}

/// The admission ledger in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// Memory granted.
    pub committed_mib: u64,
    /// Memory that may be granted; `null` where only what is available bounds it.
    #[serde(default)]
    pub budget_mib: Option<u64>,
    /// Entries granted.
    pub running: u32,
    /// Jobs waiting for more.
    pub waiting: u32,
}

/// Room on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageFree {
    /// Which.
    pub role: StorageRole,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// All inodes.
    pub inodes: u64,
}

/// What the node does and in which state it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What runs; `null` where it could not be read.
    #[serde(default)]
    pub workloads: Option<Vec<Workload>>,
    /// How many were left out.
    #[serde(default)]
    pub workloads_omitted: u32,
    /// The desired state as last applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<DesiredState>,
    /// Parts of it that the node cannot do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<String>,
    /// The node's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// Whether it takes new work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquisition: Option<Acquisition>,
    /// Who runs the host's own gitlab-runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerMode>,
    /// How that runner is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_state: Option<RunnerState>,
    /// How many jobs the host is good for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// Why that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_error: Option<String>,
    /// How far a drain is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// What concerns placed jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed: Option<Placed>,
}

/// A node's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It takes work.
    Ready,
    /// It lets its work end.
    Draining,
    /// It has none left.
    Drained,
    /// An update or reset is under way.
    Maintenance,
    /// It checks itself after one.
    Validating,
    /// It takes no work until released.
    Quarantined,
    /// A state this version does not know; it counts as not ready.
    #[serde(other)]
    Other,
}

/// Who runs the host's own gitlab-runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerMode {
    /// The node does.
    Managed,
    /// There is none (version 5).
    None,
    /// Somebody else does; also how an unknown word is read.
    #[serde(other)]
    External,
}

/// How the managed runner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerState {
    /// It runs.
    Running,
    /// It lets its jobs end.
    Quitting,
    /// It does not; also how an unknown word is read.
    #[serde(other)]
    Stopped,
}

/// How many jobs a host is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    /// By the node's estimate.
    #[serde(default)]
    pub estimate: Option<u32>,
    /// By the hub.
    #[serde(default)]
    pub hub_ceiling: Option<u32>,
    /// By the node's own setting.
    #[serde(default)]
    pub local_ceiling: Option<u32>,
    /// In force.
    #[serde(default)]
    pub effective: Option<u32>,
}

/// How far a drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// The managed runner has ended.
    pub runner_stopped: bool,
    /// The ledger holds and waits for nothing.
    pub ledger_empty: bool,
    /// Jobs without a result.
    pub active_jobs: u32,
}

/// What concerns placed jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Why the node takes none: the own gitlab-runner that was found (PLACE-14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
    /// Its own `max_concurrency` (PLACE-09).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How long a built image stays warm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_cache_idle_secs: Option<u64>,
}

/// Something that runs on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// The first 8 bytes of SHA-256 of its directory's path.
    pub id: Hex<8>,
    /// What it is.
    pub kind: WorkloadKind,
    /// Its directory.
    pub state_dir: String,
    /// Its label.
    #[serde(default)]
    pub label: Option<String>,
    /// Its project.
    #[serde(default)]
    pub project: Option<String>,
    /// Its job's name.
    #[serde(default)]
    pub job_name: Option<String>,
    /// GitLab's number of its job.
    #[serde(default)]
    pub job_id: Option<u64>,
    /// Its virtual CPUs.
    #[serde(default)]
    pub cpus: Option<u32>,
    /// Memory set aside for it.
    #[serde(default)]
    pub mem_reserved_mib: Option<u64>,
    /// Unix seconds of its start.
    #[serde(default)]
    pub started_at: Option<u64>,
}

/// What a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// A CI job.
    CiJob,
    /// A developer's VM.
    Dev,
    /// A VM started by hand.
    Run,
    /// A kind this version does not know.
    #[serde(other)]
    Other,
}
