//! A project's `.gitlab-ci.yml`: text in, the jobs of one pipeline out.
//!
//! [`Config::parse`] reads and checks the file; [`Config::pipeline`] decides its rules for one
//! [`Context`] of variables and answers with plain data; [`Config::merged`] writes the
//! configuration as it stands after anchors, references, `extends` and `default`. Which keywords
//! are known is in `docs/ci-yaml.md`; any other is an error with its line, never ignored.
//!
//! This crate must not know of files, sockets, clocks, or any other crate of the workspace.

#![forbid(unsafe_code)]

mod config;
mod context;
mod decide;
mod error;
mod expand;
mod expression;
mod faults;
mod graph;
pub mod limit;
mod model;
mod pipeline;
mod read;
mod yaml;

pub use config::Config;
pub use context::Context;
pub use error::{ConfigError, Fault, Position};
pub use pipeline::{
    AllowFailure, Artifacts, ArtifactsWhen, Cache, Image, Job, Pipeline, Retry, Variable, When,
};
