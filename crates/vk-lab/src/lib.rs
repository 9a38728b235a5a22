//! A GitLab stand-in for a laptop's fleet, the demo and the test bench.
//!
//! Everything about GitLab here is written from the description of GitLab's server alone: its types
//! are its own, so that no misreading is shared with our clients. It must know neither
//! `gitlab-runner-api` nor the insides of any program that it serves.

#![forbid(unsafe_code)]

pub mod admin;
mod cli;
pub mod gitlab;
pub mod run;
pub mod serve;

pub use cli::{Cli, Exit, run};
