//! What each stage does.

mod caches;
mod download;
mod environment;
mod image;
mod prepare;
mod script;
mod sources;
mod unsupported;
mod upload;

use std::sync::Arc;

use vk_hub_proto::job::FailureClass;
use vk_stage_core::{Stage, StageEnd};
use vk_trace::Section;

use crate::job::{Job, StopWatch};

/// Runs an attempt of a stage.
pub(crate) async fn run(job: Arc<Job>, stage: Stage, attempt: u32, stop: StopWatch) -> StageEnd {
    let end = match stage {
        Stage::PrepareExecutor => prepare::run(&job, attempt).await,
        Stage::PrepareScript => environment::run(&job).await,
        Stage::GetSources => sources::run(&job, attempt, stop).await,
        // The next attempt has a disk of its own: nothing of this one is in its way.
        Stage::ClearWorktree => {
            let line = "Deleting tracked and untracked files...";
            job.output.say(&crate::script::notice(line));
            Ok(())
        }
        Stage::RestoreCache => caches::restore(&job).await,
        Stage::DownloadArtifacts => download::run(&job).await,
        Stage::Step(n) => script::step(&job, n, stop).await,
        Stage::AfterScript => script::after(&job, stop).await,
        Stage::ArchiveCache => {
            caches::archive(&job, true).await;
            Ok(())
        }
        Stage::ArchiveCacheOnFailure => {
            caches::archive(&job, false).await;
            Ok(())
        }
        Stage::UploadArtifactsOnSuccess => upload::run(&job, true).await,
        Stage::UploadArtifactsOnFailure => upload::run(&job, false).await,
        // File variables go with the VM's disk.
        Stage::CleanupFileVariables => Ok(()),
    };
    match end {
        Ok(()) => StageEnd::Done,
        Err(end) => end,
    }
}

/// Whether a stage's script runs in the guest, and is stopped there.
pub(crate) const fn is_in_guest(stage: Stage) -> bool {
    matches!(stage, Stage::Step(_) | Stage::AfterScript)
}

/// The stage as the trace names it.
pub(crate) fn section(job: &Job, stage: Stage) -> Section {
    match stage {
        Stage::PrepareExecutor => Section::PrepareExecutor,
        Stage::PrepareScript => Section::PrepareScript,
        Stage::GetSources => Section::GetSources,
        Stage::ClearWorktree => Section::ClearWorktree,
        Stage::RestoreCache => Section::RestoreCache,
        Stage::DownloadArtifacts => Section::DownloadArtifacts,
        Stage::Step(_) => {
            let name = job.plan.name(stage);
            Section::Step(name.strip_prefix("step_").unwrap_or(name).to_owned())
        }
        Stage::AfterScript => Section::AfterScript,
        Stage::ArchiveCache => Section::ArchiveCache,
        Stage::ArchiveCacheOnFailure => Section::ArchiveCacheOnFailure,
        Stage::UploadArtifactsOnSuccess => Section::UploadArtifactsOnSuccess,
        Stage::UploadArtifactsOnFailure => Section::UploadArtifactsOnFailure,
        Stage::CleanupFileVariables => Section::CleanupFileVariables,
    }
}

/// A failure that no second try mends.
fn failed(class: FailureClass, message: impl std::fmt::Display) -> StageEnd {
    StageEnd::Failed {
        class,
        message: message.to_string(),
        transient: false,
    }
}

/// A failure of the node's, the VM's or the agent's own that another try may mend.
fn passing(message: impl std::fmt::Display) -> StageEnd {
    StageEnd::Failed {
        class: FailureClass::System,
        message: message.to_string(),
        transient: true,
    }
}

/// The node's, the VM's or the agent's own.
fn system(message: impl std::fmt::Display) -> StageEnd {
    failed(FailureClass::System, message)
}

/// An error with its causes, on one line each.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
