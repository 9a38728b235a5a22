//! How a job ended.

use serde::{Deserialize, Serialize};

/// How a job ended (DISP-53). No failure means success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// The class of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureClass>,
    /// The script's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What happened, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Bytes of the whole output.
    pub output_len: u64,
    /// What became of each upload.
    #[serde(default)]
    pub artifacts: Vec<ArtifactOutcome>,
    /// What the job used on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<JobUsage>,
}

/// Why a job failed; each class has GitLab reasons of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// A step's exit code was not 0.
    Script,
    /// The job ran past its timeout.
    Timeout,
    /// The job was cancelled.
    Canceled,
    /// An image was not pulled or built.
    ImagePull,
    /// The job asks for what is not supported or not allowed.
    Configuration,
    /// Clone, artifacts or caches were not transferred.
    ExternalDependency,
    /// VM, agent or host failed.
    System,
    /// The node was stopped or drained hard under the job.
    Interrupted,
    /// No node took the job in time.
    NoCapacity,
    /// The job's node was lost.
    Lost,
    /// A class this version does not know; it counts as [`FailureClass::System`] (FAIL-29).
    #[serde(other)]
    Other,
}

/// What became of one artifact (DISP-54).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactOutcome {
    /// The artifact's name.
    pub name: String,
    /// `archive`, or a report's type.
    pub artifact_type: String,
    /// What became of it.
    pub state: ArtifactState,
}

/// What became of one upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactState {
    /// GitLab has it.
    Uploaded,
    /// Nothing to upload, or not wanted after this end.
    Skipped,
    /// GitLab or the cap refused its size.
    TooLarge,
    /// It was wanted and did not arrive.
    Failed,
    /// A state this version does not know.
    #[serde(other)]
    Other,
}

/// What a job used on its node (DISP-55).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUsage {
    /// From the driver's start to the job's end, cleanup included, in milliseconds.
    #[serde(default)]
    pub wall_ms: u64,
    /// User and system time of everything under the job's supervisor, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Each process's peak resident size summed: an upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_mem_bytes: Option<u64>,
    /// The guest's CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// The guest's memory in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_mib: Option<u64>,
}
