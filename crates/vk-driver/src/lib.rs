//! One job from spec to result: edges around the stage core.
//!
//! [`run`] drives `vk_stage_core::StageCore`: it prepares the VM, brings the sources, runs the
//! scripts as gitlab-runner's bash shell does, moves artifacts, and writes the job's output (only
//! bytes that left `vk_trace`) and its result. It must not know the hub's session.

#![forbid(unsafe_code)]

mod archive;
mod cache;
mod context;
mod error;
mod git;
mod guest_env;
mod job;
mod marks;
mod output;
mod run;
mod script;
mod settings;
mod sources;
mod stages;
#[cfg(test)]
mod testing;
mod transfer_log;
mod tree;
mod variables;

pub use context::{
    ARTIFACT_CAP, ArtifactsAt, CACHE_CAP, CacheGrant, Caches, Control, Counts, Images, JobContext,
    JobDirs, JobPlan, JobState, NodeName, StateSender,
};
pub use error::DriverError;
pub use git::{CollectedSources, Gone, SourceBounds, collect_sources, try_git};
pub use run::run;
pub use vk_stage_core::Stop;
