//! One job as GitLab keeps it.

use serde::Serialize;

use super::ack::Waiting;
use super::artifact::Artifact;
use super::counts::Counts;
use super::ledger::{Calls, Expectation, Kind};
use super::limits::JobBuckets;
use super::spec::JobSpec;
use super::stored::Stored;
use super::token::Secret;
use super::update::Update;

/// A job's status, in GitLab's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waits for earlier jobs.
    Created,
    /// In the queue.
    Pending,
    /// Handed to a runner.
    Running,
    /// Asked to end; the runner may still write.
    Canceling,
    /// Ended well.
    Success,
    /// Ended badly.
    Failed,
    /// Cancelled.
    Canceled,
    /// Will not run.
    Skipped,
    /// Waits for somebody to start it.
    Manual,
}

impl Status {
    /// GitLab's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Canceling => "canceling",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Skipped => "skipped",
            Self::Manual => "manual",
        }
    }

    /// Whether a runner holds it.
    pub fn on_runner(self) -> bool {
        matches!(self, Self::Running | Self::Canceling)
    }

    /// Whether nothing more comes.
    pub fn is_final(self) -> bool {
        matches!(
            self,
            Self::Success | Self::Failed | Self::Canceled | Self::Skipped
        )
    }
}

/// One job, of one pipeline, at one attempt.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its id; a retry has another.
    pub id: u64,
    /// Its pipeline.
    pub pipeline: u64,
    /// What it does.
    pub spec: JobSpec,
    /// Where it stands.
    pub status: Status,
    /// Its token, dead once it is final.
    pub token: Secret,
    /// The number of attempts before this one that `retry:` made.
    pub attempt: u8,
    /// Another attempt took its place.
    pub superseded: bool,
    /// Log and artifacts were erased.
    pub erased: bool,
    /// When it became pending.
    pub queued_ms: Option<u64>,
    /// When it was handed out.
    pub started_ms: Option<u64>,
    /// When it became final.
    pub finished_ms: Option<u64>,
    /// The last change or, at most every 15 minutes, contact.
    pub updated_ms: u64,
    /// The runner that has it.
    pub runner: Option<u64>,
    /// That runner's manager.
    pub manager: Option<String>,
    /// Its log; empty once it was summed up.
    pub trace: Vec<u8>,
    /// Size and sums of its log, whether its bytes are still there or not.
    pub stored: Stored,
    /// What its log's bytes were found to be when they were dropped.
    pub(super) verdicts: Vec<(Kind, String)>,
    /// Marked as a debug log by its first patch.
    pub debug_trace: bool,
    /// A writer holds the trace.
    pub trace_locked: bool,
    /// Someone watches the log until then.
    pub watched_until_ms: u64,
    /// Why it failed.
    pub failure_reason: Option<String>,
    /// What the script returned, as the runner says.
    pub exit_code: Option<i64>,
    /// It failed and is allowed to.
    pub failure_allowed: bool,
    /// A final state that waits for the trace to be stored, and since when.
    pub waiting_final: Option<(Update, u64)>,
    /// Ended by the server itself.
    pub dropped_by_server: bool,
    /// What was uploaded.
    pub artifacts: Vec<Artifact>,
    /// Calls that came for it.
    pub calls: Calls,
    /// What it cost.
    pub counts: Counts,
    /// When its cancelling was asked for.
    pub canceled_ms: Option<u64>,
    /// Its timeout in seconds, as it was fixed when it started.
    pub timeout_secs: u64,
    /// The answer that handed it out was lost on purpose.
    pub hand_out_lost: bool,
    pub(super) waiting: Option<Waiting>,
    pub(super) rates: JobBuckets,
    /// What its log is to be.
    pub expectation: Option<Expectation>,
}

impl Job {
    pub(super) fn new(id: u64, pipeline: u64, spec: JobSpec, token: Secret, now: u64) -> Self {
        Self {
            id,
            pipeline,
            timeout_secs: spec.timeout_secs,
            spec,
            status: Status::Created,
            token,
            attempt: 0,
            superseded: false,
            erased: false,
            queued_ms: None,
            started_ms: None,
            finished_ms: None,
            updated_ms: now,
            runner: None,
            manager: None,
            trace: Vec::new(),
            stored: Stored::default(),
            verdicts: Vec::new(),
            debug_trace: false,
            trace_locked: false,
            watched_until_ms: 0,
            failure_reason: None,
            exit_code: None,
            failure_allowed: false,
            waiting_final: None,
            dropped_by_server: false,
            artifacts: Vec::new(),
            calls: Calls::default(),
            counts: Counts::default(),
            canceled_ms: None,
            hand_out_lost: false,
            waiting: None,
            rates: JobBuckets::default(),
            expectation: None,
        }
    }

    /// When its token stops being taken: timeout and five minutes after the start.
    pub fn token_expires_ms(&self) -> Option<u64> {
        let lasting = self.timeout_secs.max(300) + 300;
        self.started_ms.map(|at| at + lasting * 1_000)
    }
}
