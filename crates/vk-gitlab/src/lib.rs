//! The daemon's edges: configuration, state files, GitLab, the hub, and the loop that drives the
//! cores of `vk-gitlab-core`.
//!
//! It must not know how a job is run, nor anything of nodes but their names.

#![forbid(unsafe_code)]

mod cli;
mod clock;
pub mod config;
pub mod edge;
mod enrol;
mod jobs;
pub mod log;
mod log_lines;
pub mod metrics;
pub mod operator;
mod run;
pub mod session;
mod start;
pub mod state;
mod system_id;
pub mod translate;
pub mod verify;

pub use cli::Cli;
pub use run::run;
