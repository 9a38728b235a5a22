//! What a job is run with, what it is told meanwhile, and what it tells.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use vk_hub_proto::dispatch::GuestSize;
use vk_hub_proto::job::{CiJob, JobResult};
use vk_image::{Rules, Store};
use vk_vm::Vmm;
use vk_vm::confine::Confinement;

use crate::git::SourceBounds;

/// Everything one job needs of its node.
#[derive(Debug)]
pub struct JobContext {
    /// The job, with its secrets.
    pub spec: CiJob,
    /// How large it is, by the node's own rules (ADM-15).
    pub plan: JobPlan,
    /// Where it and its project lie.
    pub dirs: JobDirs,
    /// Who runs it, for its trace and its variables.
    pub node: NodeName,
    /// What starts its VM.
    pub vmm: Arc<dyn Vmm>,
    /// Walls around the host's programs that read what others wrote: its git.
    pub confinement: Confinement,
    /// Where its image comes from.
    pub images: Images,
    /// Where its artifacts go, and those of earlier jobs come from.
    pub artifacts: ArtifactsAt,
    /// From the VMM's start to the agent's hello.
    pub boot_limit: Duration,
    /// How much may be in an upload's archive, in bytes.
    pub artifact_cap: u64,
    /// Where its caches are kept.
    pub caches: Caches,
    /// Where the process dies, in builds for crash tests.
    pub kill: vk_kill::KillPoints,
}

/// The largest archive that is uploaded where nothing else is said: 10 GiB.
pub const ARTIFACT_CAP: u64 = 10 << 30;

/// The largest layer of a cache where nothing else is said: 10 GiB (GUEST-07).
pub const CACHE_CAP: u64 = 10 << 30;

/// Where a job's caches are kept, and by whose right (CACHE-01).
#[derive(Clone, Debug)]
pub struct Caches {
    /// The node's registry and a path in it: `host[:port][/path]`. Without one there are no caches.
    pub repo: Option<String>,
    /// The node's own credential there.
    pub credential: Option<vk_oci::Credential>,
    /// Certificates of authorities that speak for the registry beside the host's, PEM.
    pub authorities: Vec<Vec<u8>>,
    /// The registry is spoken to in plain HTTP. No credential goes there then, but to loopback.
    pub insecure: bool,
    /// The node's credential serves no job: one without a token for a cache repository has no caches
    /// (CACHE-15).
    pub job_token_only: bool,
    /// What came with the job's start.
    pub granted: Option<CacheGrant>,
    /// What is wrong with the node's settings of its registry: then there are no caches.
    pub unusable: Option<String>,
    /// Bytes of one cache's layer at most, as it is stored.
    pub layer_cap: u64,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            repo: None,
            credential: None,
            authorities: Vec::new(),
            insecure: false,
            job_token_only: false,
            granted: None,
            unusable: None,
            layer_cap: CACHE_CAP,
        }
    }
}

/// A token for the registry, made for one job (CACHE-10 to CACHE-13).
#[derive(Clone, Debug)]
pub struct CacheGrant {
    /// Who the token is for, where a registry asks for a name.
    pub username: String,
    /// The token.
    pub token: vk_oci::Password,
    /// Until when it may be used.
    pub expires_at: Instant,
    /// The repository of the job's caches, from the registry's root; it names the protection.
    pub repository: Option<String>,
}

impl From<&CacheGrant> for vk_oci::Credential {
    fn from(grant: &CacheGrant) -> Self {
        let (username, password) = (grant.username.clone(), grant.token.clone());
        Self { username, password }
    }
}

/// A job's share of its node.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// Virtual processors of the VM.
    pub cpus: u32,
    /// Its memory in MiB.
    pub mem_mib: u64,
    /// Its writable disk in bytes (sparse).
    pub disk_bytes: u64,
    /// `CI_CONCURRENT_ID`.
    pub slot: u32,
    /// `CI_CONCURRENT_PROJECT_ID`.
    pub project_slot: u32,
    /// What the sizing rules have to say to the job's owner, for the trace.
    pub warnings: Vec<String>,
}

/// Directories of one job.
#[derive(Clone, Debug)]
pub struct JobDirs {
    /// The job's own, which is there and empty of earlier jobs: `output`, `result.json` and
    /// `stages.jsonl` are written here, everything else lies in `work` below it and is gone at the
    /// end. Mode 0700.
    pub job: PathBuf,
    /// Bare mirrors of projects' repositories, shared by all jobs of the node. Made where missing.
    pub mirrors: PathBuf,
    /// What of the disk mirrors and LFS objects may take.
    pub bounds: SourceBounds,
}

/// How the node calls itself in a trace.
#[derive(Clone, Debug)]
pub struct NodeName {
    /// The host's name: `Running on … via <name>...`.
    pub host: String,
    /// The program's version.
    pub version: String,
    /// Its revision.
    pub revision: String,
}

/// Images of the node.
#[derive(Clone, Debug)]
pub struct Images {
    /// The store.
    pub store: Store,
    /// What jobs may use.
    pub rules: Rules,
    /// Registries (`host[:port]`) that are spoken to in plain HTTP.
    pub insecure_registries: Vec<String>,
}

/// Where artifacts go to and come from.
#[derive(Clone, Debug)]
pub enum ArtifactsAt {
    /// The job's GitLab, by its job token (ART-01).
    GitLab,
    /// A directory: an upload becomes `<job id>/<file name>` below it, a dependency's archive is
    /// taken from `<its job id>/`. For `vk job run`, which may have no GitLab.
    Directory(PathBuf),
}

/// What a job is told from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// The ledger gave it all it asked for: it may take memory and disk. Repeats are harmless.
    /// Nothing of a VM is started before it.
    Grant,
    /// It will not get what it asked for: it ends `system`, its trace naming what is short
    /// (ADM-34).
    Deny {
        /// What is short: `memory`, `disk`.
        short: String,
    },
    /// It shall stop. Repeats are harmless.
    Stop(vk_stage_core::Stop),
}

/// How a job stands: told by a watch channel, so that a reader who comes late or is slow sees the
/// present and holds nothing up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobState {
    /// The stage that runs or ran last, by gitlab-runner's name.
    pub stage: Option<String>,
    /// Its attempt, from 1.
    pub attempt: u32,
    /// What it is doing, for display.
    pub activity: Option<String>,
    /// The VM's size, once it runs (DISP-23).
    pub guest: Option<GuestSize>,
    /// From the VMM's start to the agent's hello, once it was heard, in milliseconds.
    pub boot_ms: Option<u64>,
    /// What was counted of the job.
    pub counts: Counts,
    /// The VMM's name and what it runs on (`qemu`, `KVM`), once it runs.
    pub vmm: Option<(String, String)>,
    /// Bytes in `output`: all of them final, none of them synced before the result is there.
    pub output_len: u64,
    /// The result, after `result.json` and `output` are durable.
    pub result: Option<JobResult>,
}

/// What is counted of a job, for its node's operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// VMs that booted.
    pub boots: u32,
    /// Caches that were there and are in the tree.
    pub cache_hits: u32,
    /// Caches of whose key nothing is saved.
    pub cache_misses: u32,
    /// Caches that the registry failed or refused, or that are broken.
    pub cache_errors: u32,
    /// Images pulled.
    pub pulls: u32,
    /// Images that could not be had.
    pub pulls_failed: u32,
}

/// Tells how a job stands.
pub type StateSender = watch::Sender<JobState>;
