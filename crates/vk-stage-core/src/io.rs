//! What happens to a job's stages, what is kept of them, and what is done: the file to read first.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};
use vk_hub_proto::job::FailureClass;
use vk_step::Now;

use crate::line::Line;

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The job begins: its time starts to run.
    Begin,
    /// A deadline has come; early or repeated ones are harmless.
    Timeout,
    /// An attempt of a stage ended, by itself or because it was killed.
    Ended {
        /// Which stage.
        stage: Stage,
        /// Which attempt.
        attempt: u32,
        /// How.
        end: StageEnd,
    },
    /// The job is to stop.
    Stop(Stop),
    /// The VM is gone, with whatever ran in it.
    VmDied {
        /// Why, for people.
        message: String,
    },
}

/// Why and how hard a job is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A cancel that leaves time for `after_script` and uploads, where the script has begun.
    Graceful,
    /// A cancel at once.
    Immediate,
    /// The node stops or was drained hard (FAIL-12).
    Interrupt,
}

/// A stage, in the order in which stages run (STAGE-01 to STAGE-05).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Admission, image, boot, services.
    PrepareExecutor,
    /// The first script in the VM.
    PrepareScript,
    /// The checkout and the hooks around it.
    GetSources,
    /// Empties the work tree between the first and the second attempt of [`Stage::GetSources`].
    ClearWorktree,
    /// Caches.
    RestoreCache,
    /// Artifacts of earlier jobs.
    DownloadArtifacts,
    /// A step of the job, by its place in [`crate::Plan::steps`].
    Step(u32),
    /// What runs after the steps, however they ended.
    AfterScript,
    /// Caches, where nothing failed.
    ArchiveCache,
    /// Caches, where something failed.
    ArchiveCacheOnFailure,
    /// Artifacts, where nothing failed.
    UploadArtifactsOnSuccess,
    /// Artifacts, where something failed.
    UploadArtifactsOnFailure,
    /// Removes what the scripts left in files.
    CleanupFileVariables,
}

/// How an attempt of a stage ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageEnd {
    /// Well, or with nothing to do.
    Done,
    /// Its script's exit code.
    Exit(i32),
    /// Otherwise.
    Failed {
        /// What kind of failure it is.
        class: FailureClass,
        /// What happened, for people.
        message: String,
        /// Worth another attempt of [`Stage::PrepareExecutor`]; other stages' attempts do not ask.
        transient: bool,
    },
}

/// What is kept: enough to tell what ran, and that a job never runs twice. A job process has one
/// life; one that finds records of an earlier life ends its job `interrupted`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// An attempt of a stage began.
    StageStarted {
        /// The stage's name.
        stage: String,
        /// Counted from 1.
        attempt: u32,
    },
    /// It ended.
    StageEnded {
        /// The stage's name.
        stage: String,
        /// Counted from 1.
        attempt: u32,
        /// Well?
        ok: bool,
    },
    /// The job is over.
    Finished {
        /// How it ended.
        end: End,
    },
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
pub enum Effect {
    /// Run a stage; a step's name and lines are at its place in the plan. Answered with
    /// [`Input::Ended`] for this very attempt.
    Run {
        /// Which stage.
        stage: Stage,
        /// Which attempt, counted from 1.
        attempt: u32,
        /// When it will be killed at the latest; none without a job timeout.
        deadline: Option<Now>,
    },
    /// Stop the running attempt. It is still answered with [`Input::Ended`], or, for
    /// [`Kill::Vm`], [`Input::VmDied`]. Where the stage runs on the host, each of them ends it.
    Kill {
        /// Which stage.
        stage: Stage,
        /// How.
        how: Kill,
    },
    /// From now on scripts see this `CI_JOB_STATUS`.
    SetJobStatus(JobStatus),
    /// Write one of the node's own lines to the trace: behind the body of the stage that ended
    /// last, or before the one that comes next.
    Print(Line),
    /// The job is over: write its last line ([`End::line`]) and its result.
    Finish(End),
}

/// How a running attempt is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// SIGTERM to everything the stage's script started.
    Term,
    /// SIGKILL to everything the stage's script started.
    Kill,
    /// The VM is ended at once.
    Vm,
}

/// `CI_JOB_STATUS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// Before `after_script`.
    Running,
    /// Nothing failed.
    Success,
    /// Something did.
    Failed,
    /// The job was cancelled.
    Canceled,
    /// The script took too long.
    TimedOut,
}

impl JobStatus {
    /// Its value in scripts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            JobStatus::Running => "running",
            JobStatus::Success => "success",
            JobStatus::Failed => "failed",
            JobStatus::Canceled => "canceled",
            JobStatus::TimedOut => "timedout",
        }
    }
}

/// How a job ended. No failure means success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The class of its failure.
    pub failure: Option<FailureClass>,
    /// The script's exit code, where the class is [`FailureClass::Script`] (FAIL-28).
    pub exit_code: Option<i32>,
    /// What happened, for people.
    pub message: Option<String>,
}

impl End {
    /// The trace's last line.
    #[must_use]
    pub fn line(&self) -> Line {
        match self.failure {
            None => Line::JobSucceeded,
            Some(class) => Line::JobFailed {
                system: matches!(class, FailureClass::System | FailureClass::Other),
                message: self.message.clone().unwrap_or_default(),
            },
        }
    }
}
