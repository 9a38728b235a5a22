//! The driver's state machine: which stage follows what, how often a stage is tried, when it is
//! stopped, what `CI_JOB_STATUS` says, and how the job ended.
//!
//! Pure: inputs in, records and effects out ([`vk_step`]). It must not know scripts, VMs, sockets,
//! files or clocks. The order of stages, the attempts, the timeouts and the texts are
//! gitlab-runner's, so that a job sees no difference.

#![forbid(unsafe_code)]

mod core;
pub mod duration;
mod flow;
pub mod io;
pub mod line;
pub mod plan;
mod stop;

pub use crate::core::StageCore;
pub use io::{Effect, End, Input, JobStatus, Kill, Record, Stage, StageEnd, Stop};
pub use line::Line;
pub use plan::Plan;

#[cfg(test)]
mod tests;
