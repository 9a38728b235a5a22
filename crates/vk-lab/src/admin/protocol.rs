//! What is said on the admin socket.
//!
//! A line is one `Command`. Each is answered by one line `{"ok":true,…}` or
//! `{"ok":false,"error":{"code","message"}}`; a trace by lines `{"ok":true,"data":"<base64>"}` and a
//! last one with `"end":true`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gitlab::spec::PipelineSpec;

/// Longest line either way.
pub(crate) const MAX_LINE: u64 = 16 << 20;

/// One thing to do.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(tag = "cmd", rename_all = "snake_case")]
pub enum Command {
    /// Makes a pipeline; answers its id and its jobs' ids.
    Trigger {
        /// The pipeline.
        pipeline: PipelineSpec,
    },
    /// Cancels a job, at once with `force`.
    Cancel {
        /// The job.
        job: u64,
        /// Does not wait for the runner.
        #[serde(default)]
        force: bool,
    },
    /// Starts a manual job.
    Play {
        /// The job.
        job: u64,
    },
    /// Runs a job that has ended once more; answers the new id.
    Retry {
        /// The job.
        job: u64,
    },
    /// Everything that is known of the runner, pipelines and jobs; of one pipeline only with its
    /// id; waits until that one has ended with `wait`.
    Status {
        /// Only this one.
        #[serde(default)]
        pipeline: Option<u64>,
        /// Answers when it has ended.
        #[serde(default)]
        wait: bool,
    },
    /// A job's log; with `follow` until the job has ended. Counts as someone watching.
    Trace {
        /// The job.
        job: u64,
        /// Goes on until its end.
        #[serde(default)]
        follow: bool,
    },
    /// The broken promises so far.
    Invariants,
    /// What a job's log is to be.
    Expect {
        /// The job.
        job: u64,
        /// What.
        #[serde(flatten)]
        expected: Expected,
    },
    /// A fault to come.
    Inject {
        /// Which.
        #[serde(flatten)]
        fault: FaultPlan,
    },
    /// Loses stored output of a job from `keep` bytes on.
    ForgetTrace {
        /// The job.
        job: u64,
        /// What stays.
        #[serde(default)]
        keep: usize,
    },
    /// Moves the server's clock forwards and sweeps once.
    Advance {
        /// Seconds.
        secs: u64,
    },
    /// Switches settings.
    Set(SettingsEdit),
    /// Edits the runner.
    Runner(RunnerEdit),
    /// Erases a job's log and artifacts.
    Erase {
        /// The job.
        job: u64,
    },
    /// Deletes a project.
    DeleteProject {
        /// Its path.
        project: String,
    },
}

/// What a log is to be.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// Exactly the bytes of this file on the server's host.
    TraceFile(std::path::PathBuf),
    /// These parts, in this order.
    Contains(Vec<String>),
}

/// A fault: the known ones have `on` and `action`; any other object is answered 501.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct FaultPlan(
    /// As it was given.
    pub Value,
);

/// Settings to change; what is left out stays.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct SettingsEdit {
    /// How long a job request is held, in nanoseconds: 0 (off), 50 or 50000000000 as GitLab has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_poll_ns: Option<u64>,
    /// Live traces, with the 202 ladder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_trace: Option<bool>,
    /// How long storing a live trace takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_delay_ms: Option<u64>,
    /// Largest trace in MiB; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_limit_mib: Option<u64>,
    /// Largest artifact in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_limit: Option<u64>,
    /// Whether artifacts are taken at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts_enabled: Option<bool>,
    /// `modern`; any other is answered 501.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_mode: Option<String>,
}

/// The runner's properties to change; what is left out stays.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct RunnerEdit {
    /// Gets no job while set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Whether it takes jobs without tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_untagged: Option<bool>,
    /// When its token expires, in seconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_expires_in_secs: Option<u64>,
}

/// Why a command was not done.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct AdminError {
    /// `invalid`, `not_found`, `conflict`, `not_implemented` or `failed`.
    pub code: String,
    /// What was tried, why it failed and what to do.
    pub message: String,
}

impl AdminError {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}
