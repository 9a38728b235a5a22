//! The hub: the edge around the fleet core. It listens for daemons and nodes, keeps what the core
//! says is to be kept, and shows operators their fleet.
//!
//! It must know neither GitLab's API nor how a job is run.

#![forbid(unsafe_code)]

pub mod admin;
mod cli;
pub mod config;
pub mod fleet;
pub mod http;
pub mod members;
pub mod output;
mod run;
mod serve;
mod show;
pub mod store;
pub mod tls;
pub mod tokens;

pub use cli::Cli;
pub use run::run;
