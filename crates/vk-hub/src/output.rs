//! The bytes of jobs' output: one segmented log for all jobs, so that one sync covers a batch.

mod log;
mod segment;

pub use log::{OutputError, OutputLog};
