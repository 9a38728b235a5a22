//! What happens to a node, what it keeps, and what it does: the file to read first.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};
use vk_hub_proto::client::CancelMode;
use vk_hub_proto::dispatch::{GuestSize, HubJobMessage, NodeJobMessage};
use vk_hub_proto::job::JobResult;
use vk_hub_proto::node_session::{
    Acquisition, CommandOp, CommandOutcome, DesiredState, Drain, NodeState,
};
use vk_hub_proto::{CommandId, JobId};

use crate::death::Death;
use crate::ledger::{Amount, Resource};

/// What can happen to a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A deadline has come; early or repeated ones are harmless.
    Timeout,
    /// The hub welcomed the node and the inventory went out. `session` is a number the edge never
    /// used before in this life; every effect for the hub carries it.
    SessionOpened {
        /// The session's number.
        session: u64,
        /// The protocol version chosen.
        version: u32,
    },
    /// The session ended; what was sent and not acked may or may not have arrived.
    SessionLost,
    /// A job message of the hub's. The edge keeps the message of a start until the step's records
    /// are durable: see [`Record::Started`].
    Hub {
        /// The message.
        message: Box<HubJobMessage>,
        /// What the edge knows of a start; anything for the other messages.
        start: StartFacts,
    },
    /// What the operator wants of the node.
    Desired(DesiredState),
    /// A steering command; `expired` where its time had passed when it came.
    Command {
        /// Its ID.
        id: CommandId,
        /// What to do.
        op: CommandOp,
        /// Too late to begin.
        expired: bool,
    },
    /// What an operator on this host wants: nobody waits for an ack. What came of it:
    /// [`NodeCore::outcome`](crate::NodeCore::outcome).
    Operator {
        /// An ID that was never used before.
        id: CommandId,
        /// What to do.
        op: OperatorOp,
    },
    /// What became of a job's process, directory or output.
    Job {
        /// Which job.
        job: JobId,
        /// What happened.
        event: JobEvent,
    },
    /// What the ledger may grant in all. The edge reads file systems and memory; a budget that
    /// shrank below what is granted revokes nothing.
    Budgets(Budgets),
    /// The host's own gitlab-runner was found (what, in words) or is no longer there (PLACE-15).
    OwnRunner(Option<String>),
    /// The host is stopping, or is drained hard: every job ends `interrupted` (FAIL-12).
    InterruptJobs,
    /// The journal could not be written. The edge drops the step whose records it could not keep,
    /// and all later ones, records and effects together, ends the session, opens the core again
    /// from what is durable and gives it this first. Until [`Input::StoreWorks`] the core keeps
    /// nothing, and takes no new work; running jobs go on.
    StoreFailed {
        /// Why, for the hub and the operator.
        why: String,
    },
    /// The journal can be written again.
    StoreWorks,
}

/// What an operator on the node's host may have it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorOp {
    /// Take no new work, let present work end.
    Drain,
    /// The same, and be in maintenance then: only an operator on this host ends that.
    Maintain,
    /// Take work again.
    Undrain,
}

/// What the edge measures of a start before it gives it to the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartFacts {
    /// Bytes of the spec as serialized (DISP-81).
    pub spec_bytes: usize,
    /// Memory to set aside by the job's past runs, in MiB ([`crate::sizing::from_history`]).
    pub history_mib: Option<u64>,
}

/// What may be granted in all; none where nothing bounds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// Memory in MiB.
    pub mem_mib: Option<u64>,
    /// Disk in bytes: what is free plus what jobs already wrote of what was granted to them.
    pub disk_bytes: Option<u64>,
}

/// What became of one job's process, directory or output.
#[derive(Clone, Debug, PartialEq)]
pub enum JobEvent {
    /// Answer to [`Effect::Attach`]: the job's process never began. Said only where its durable
    /// mark of having begun is missing and its lock is free; else the job would run twice.
    NotStarted,
    /// Its process holds the lock, and the edge is subscribed to it.
    Alive {
        /// Bytes in its output.
        output_len: u64,
    },
    /// It is in a stage.
    Stage {
        /// The stage's name.
        stage: String,
        /// What the stage is doing, for display.
        activity: Option<String>,
    },
    /// Its VM has a size (DISP-23).
    Guest(GuestSize),
    /// Its output grew to this many bytes.
    Output {
        /// Bytes in its output.
        len: u64,
    },
    /// Its process wrote its result, having synced its output before.
    Result(JobResult),
    /// Its process is gone and left no result.
    Ended {
        /// Bytes in its output.
        output_len: u64,
        /// What is known of it.
        death: Death,
    },
    /// Its process could not be started.
    SpawnFailed {
        /// Why.
        why: String,
    },
    /// Answer to [`Effect::CleanUp`]: nothing of it is left running.
    CleanedUp,
    /// Answer to [`Effect::CloseOutput`].
    OutputClosed {
        /// Bytes in its output now.
        len: u64,
    },
    /// Answer to [`Effect::Remove`]: its directory is gone.
    Removed,
}

/// What a node keeps. No secrets and no specs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A job was taken. Making this durable includes the start message itself: the edge writes it,
    /// with its secrets, to a file of mode 0600 in the job's directory of mode 0700 and syncs both
    /// before this record counts as kept (CRED-15, DISP-41).
    Started(Box<StartedJob>),
    /// The ledger gave a job all it asked for.
    Granted {
        /// Which job.
        job: JobId,
    },
    /// A job waited too long for what exceeds its reservation, or could never get it (ADM-34).
    Denied {
        /// Which job.
        job: JobId,
        /// What is short.
        short: Resource,
    },
    /// The hub cancelled a job; a later `immediate` replaces a `graceful`.
    Cancelled {
        /// Which job.
        job: JobId,
        /// How hard.
        mode: CancelMode,
    },
    /// A job ended without a result of its process's; its output gets a last line about it.
    Closing {
        /// Which job.
        job: JobId,
        /// The line.
        line: ClosingLine,
    },
    /// A job is over.
    Finished {
        /// Which job.
        job: JobId,
        /// How it ended.
        result: JobResult,
    },
    /// The hub stored a job's result.
    Recorded {
        /// Which job.
        job: JobId,
    },
    /// Nothing of a job is left on disk. Its earlier records may go; this one is kept among the
    /// last [`crate::Config::remembered_jobs`].
    Dropped {
        /// Which job.
        job: JobId,
    },
    /// The desired state as applied.
    Desired(DesiredState),
    /// A command was answered; kept among the last [`crate::Config::remembered_commands`].
    Commanded {
        /// Which command.
        id: CommandId,
        /// The answer.
        outcome: CommandOutcome,
        /// The operator's states after it.
        standing: Standing,
    },
}

/// What is kept of a job that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedJob {
    /// The hub's ID.
    pub job: JobId,
    /// GitLab's number.
    pub gitlab_id: u64,
    /// Its project.
    pub project: Project,
    /// How it is to run.
    pub plan: RunPlan,
    /// What it had of the ledger when it was taken.
    pub granted: Amount,
    /// What it needs of the ledger.
    pub asked: Amount,
}

/// A project: numbers of projects are each GitLab server's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Project {
    /// The server's URL.
    pub server: String,
    /// GitLab's number.
    pub id: u64,
}

/// How a job is to run, by the node's own rules (ADM-15).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPlan {
    /// `CI_CONCURRENT_ID`: the lowest number free among the node's jobs.
    pub slot: u32,
    /// `CI_CONCURRENT_PROJECT_ID`: the lowest number free among the project's jobs here.
    pub project_slot: u32,
    /// Virtual CPUs of its VM.
    pub cpus: u32,
    /// Memory of its VM in MiB.
    pub mem_mib: u64,
    /// Its writable disk in bytes.
    pub disk_bytes: u64,
    /// Warnings for its trace: values that did not parse or were cut.
    pub warnings: Vec<String>,
}

/// The last line of an output whose job left no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosingLine {
    /// The output's length as found.
    pub own_len: u64,
    /// Where the line goes. Where that exceeds `own_len`, the host lost those bytes, which the hub
    /// has, and perhaps more after them: the line says so.
    pub at: u64,
    /// What the line is about.
    pub end: DeadEnd,
}

/// Why a job's process left no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum DeadEnd {
    /// It died; the job ends `interrupted` (FAIL-34).
    Died {
        /// What is known of it; nothing in records of before it was kept.
        #[serde(default)]
        death: Death,
    },
    /// It could not be started; the job ends `system`.
    NotSpawned {
        /// Why.
        why: String,
    },
}

/// As the job's log and result have it.
impl fmt::Display for DeadEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeadEnd::Died { death } => {
                let ended = "the job's process on its node ended without a result";
                write!(f, "{ended}: {death}")
            }
            DeadEnd::NotSpawned { why } => {
                write!(f, "the job's process could not be started: {why}")
            }
        }
    }
}

/// The operator's states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Take no new work, let present work end.
    pub draining: bool,
    /// Hold nothing, take nothing.
    pub quarantined: bool,
    /// The drain is for work on the host; an older node that reads it drains.
    #[serde(default, skip_serializing_if = "is_false")]
    pub maintenance: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, IntoStaticStr, VariantNames)]
pub enum Effect {
    /// Send a report with this in it. An effect for another session than the present one is
    /// dropped, here and below.
    SendReport {
        /// In which session.
        session: u64,
        /// What the core knows of a report.
        status: Box<Status>,
    },
    /// Send a job message.
    Send {
        /// In which session.
        session: u64,
        /// The message.
        message: Box<NodeJobMessage>,
    },
    /// Read these bytes of a job's output and send them as one message.
    SendOutput {
        /// In which session.
        session: u64,
        /// Whose.
        job: JobId,
        /// From where in its output.
        offset: u64,
        /// How many, at most [`vk_hub_proto::limit::CHUNK_BYTES`].
        len: u64,
    },
    /// Answer a command.
    SendAck {
        /// In which session.
        session: u64,
        /// Which command.
        id: CommandId,
        /// The answer.
        outcome: CommandOutcome,
    },
    /// Start a job's process. One that already runs, or has begun before, is left alone and
    /// treated as [`Effect::Attach`]. The process waits for [`Effect::Grant`] before it takes
    /// memory or disk. Answered with [`JobEvent::Alive`], [`JobEvent::SpawnFailed`] or
    /// [`JobEvent::Ended`].
    Spawn {
        /// Which job.
        job: JobId,
        /// How it is to run.
        plan: Box<RunPlan>,
    },
    /// Find a job's process. Answered with [`JobEvent::NotStarted`], [`JobEvent::Alive`],
    /// [`JobEvent::Result`] or [`JobEvent::Ended`].
    Attach {
        /// Which job.
        job: JobId,
    },
    /// Tell a job's process that it has all it asked for. Repeats are harmless.
    Grant {
        /// Which job.
        job: JobId,
    },
    /// Tell a job's process that it will not get what it asked for: it ends `system`, its trace
    /// naming the resource (ADM-34). Repeats are harmless.
    Deny {
        /// Which job.
        job: JobId,
        /// What is short.
        short: Resource,
    },
    /// Tell a job's process to stop. Repeats are harmless.
    Stop {
        /// Which job.
        job: JobId,
        /// How.
        how: Stop,
    },
    /// End whatever a dead process left running. Answered with [`JobEvent::CleanedUp`].
    CleanUp {
        /// Which job.
        job: JobId,
    },
    /// Make a dead job's output end at the line's offset, longer or shorter as it may be, append
    /// the line and sync it. Answered with [`JobEvent::OutputClosed`].
    CloseOutput {
        /// Which job.
        job: JobId,
        /// The line.
        line: ClosingLine,
    },
    /// The job is over: remove its start file, all tokens with it (CRED-15, REG-03).
    DropSecrets {
        /// Which job.
        job: JobId,
    },
    /// The hub has its result: remove its directory. Answered with [`JobEvent::Removed`], also
    /// where it was gone.
    Remove {
        /// Which job.
        job: JobId,
    },
}

/// How a job's process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// Stop the script, run what follows a cancel; ends `canceled`.
    Graceful,
    /// Stop at once; ends `canceled`.
    Immediate,
    /// Stop at once because the node stops; ends `interrupted`.
    Interrupt,
}

impl From<CancelMode> for Stop {
    fn from(mode: CancelMode) -> Stop {
        match mode {
            CancelMode::Graceful => Stop::Graceful,
            CancelMode::Immediate => Stop::Immediate,
        }
    }
}

/// What the core knows of a node's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The node's state.
    pub state: NodeState,
    /// Whether it takes new work.
    pub acquisition: Acquisition,
    /// The desired state as last applied.
    pub applied: Option<DesiredState>,
    /// How far a drain is; none where there is none. Its `runner_stopped` is true: the core knows
    /// of no runner, the edge of a managed one says otherwise.
    pub drain: Option<Drain>,
    /// The own gitlab-runner that was found (PLACE-14).
    pub own_runner: Option<String>,
    /// The hub's ceiling in force.
    pub ceiling: Option<u32>,
    /// Why the journal cannot be written, where it cannot.
    pub store_failed: Option<String>,
}
