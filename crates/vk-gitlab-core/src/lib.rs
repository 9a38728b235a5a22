//! The daemon's state machines.
//!
//! [`acquire`] asks GitLab for jobs, one machine a runner: capacity first, then a reservation, then
//! the job request. [`job`] carries one job from GitLab's 201 to its end, one machine a job: state
//! file, submission, commit, trace, final state, settling. [`slots`] shares `concurrent` among the
//! runners, and [`state_file`] renders and reads a runner's state file.
//!
//! Pure: no I/O, no async, no clock, no randomness, and no byte of a job's output. It must not know
//! HTTP, files, the translation of GitLab's response, or how a log line is stamped.

#![forbid(unsafe_code)]

pub mod acquire;
mod backoff;
mod hub_failure;
pub mod job;
mod new_job;
pub mod slots;
pub mod state_file;

pub use backoff::{Backoff, Spread};
pub use hub_failure::HubFailure;
pub use new_job::{NewJob, WithoutReservation, Work};
