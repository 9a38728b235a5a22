//! The node's daemon and its job processes: edges around the node core.
//!
//! [`daemon`] owns the core, its [`journal`], and one session with the hub at a time; each job is a
//! process of its own ([`job::process`]) that the daemon speaks with over a socket in the job's
//! directory. It must not know GitLab's API nor QEMU: what runs a job is behind
//! [`job::process::Runner`].

#![forbid(unsafe_code)]

pub mod admin;
pub mod config;
pub mod daemon;
pub mod durable;
pub mod gc;
mod host;
pub mod job;
pub mod join;
pub mod journal;
mod metrics;
pub mod own_runner;
pub mod past_runs;
mod session;
pub mod size;
pub mod state_dir;
pub mod view;
