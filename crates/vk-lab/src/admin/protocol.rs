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
    /// Loses stored output of a job from `keep` bytes on, or its last `tail` bytes.
    ForgetTrace {
        /// The job.
        job: u64,
        /// What stays.
        #[serde(default)]
        keep: usize,
        /// What is lost; `keep` does not count then.
        #[serde(default)]
        tail: Option<usize>,
    },
    /// The faults that wait, with how many calls each saw and hit.
    Faults,
    /// Forgets all faults.
    ClearFaults,
    /// Moves the server's clock forwards and sweeps once.
    Advance {
        /// Seconds.
        secs: u64,
    },
    /// Moves the server's clock by so many seconds, backwards too, and looks for nothing: a skew
    /// between its clock and its clients'.
    Skew {
        /// Seconds.
        secs: i64,
    },
    /// Listens on one more address.
    Listen(Listen),
    /// The requests that came to the other host.
    Elsewhere,
    /// Breaks all connections; what is known stays.
    Restart {
        /// For so many milliseconds no connection is taken.
        #[serde(default)]
        down_ms: u64,
    },
    /// Remembers how everything stands.
    Snapshot,
    /// Goes back to what was remembered.
    Rollback,
    /// What all jobs cost together.
    Totals,
    /// Adds runners, each with a token of its own.
    AddRunners {
        /// How many.
        #[serde(default = "one")]
        count: u32,
        /// Their tags.
        #[serde(default)]
        tags: Vec<String>,
        /// Where their tokens are written, as `runner-<id>.token` (mode 0600).
        token_dir: std::path::PathBuf,
    },
    /// Lets job tokens of one project read another (submodules).
    LetRead {
        /// What is read.
        project: String,
        /// Whose jobs read it.
        reader: String,
    },
    /// Serves an image from the registry: to jobs of the project whose path its name begins with,
    /// or, as `<group>/dependency_proxy/containers/<name>`, to jobs of the group.
    Image {
        /// Its name, without registry and tag.
        name: String,
        /// The directory of its OCI layout.
        layout: std::path::PathBuf,
    },
    /// Hides the ref of a pipeline: for so many seconds, or for good.
    HideRef {
        /// The pipeline; the next one that is made when left out.
        #[serde(default)]
        pipeline: Option<u64>,
        /// Seconds from its first job's 201; for good when left out.
        #[serde(default)]
        secs: Option<u64>,
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

fn one() -> u32 {
    1
}

/// One more address to listen on.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(tag = "as", rename_all = "snake_case")]
pub enum Listen {
    /// Another host: the object store, and where redirects lead.
    Elsewhere {
        /// Where.
        addr: std::net::SocketAddr,
        /// The address as clients see it; `http://<addr>` when left out.
        #[serde(default)]
        url: Option<String>,
    },
    /// The server itself with TLS. Once more with the same address changes the certificate.
    Https {
        /// Where.
        addr: std::net::SocketAddr,
        /// PEM file of the certificate and those above it.
        cert: std::path::PathBuf,
        /// PEM file of its key.
        key: std::path::PathBuf,
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

/// A fault: `on` and `action`, and what `vk-lab inject --help` lists.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct FaultPlan(
    /// As it was given.
    pub Value,
);

/// Settings to change, by their names (`gitlab::Settings`); what is left out stays. One that is not
/// known is refused.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct SettingsEdit(
    /// Names and values.
    pub serde_json::Map<String, Value>,
);

/// The runner's properties to change; what is left out stays.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct RunnerEdit {
    /// Which; the first when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Gets no job while set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Whether it takes jobs without tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_untagged: Option<bool>,
    /// Takes jobs of protected refs only, of which there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ref_protected: Option<bool>,
    /// Longest timeout of its jobs, in seconds; 0 takes the bound away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_timeout_secs: Option<u64>,
    /// When its token expires, in seconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_expires_in_secs: Option<u64>,
}

/// Why a command was not done.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct AdminError {
    /// `invalid`, `not_found`, `conflict` or `failed`.
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
