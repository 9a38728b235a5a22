//! GitLab's own mind: runners, pipelines, jobs, traces. No socket and no clock here: what time it
//! is comes with each call, in milliseconds since the Unix epoch.

pub mod artifact;
mod auth;
mod cancel;
pub mod dotenv;
mod flow;
mod job;
pub mod ledger;
mod predefined;
mod queue;
mod reaper;
mod reply;
mod response;
mod runner;
pub mod spec;
mod state;
pub mod token;
mod trace;
mod update;
mod upload;
mod variable;
mod variables;

pub use job::{Job, Status};
pub use predefined::Facts;
pub use queue::{Gate, JobRequest};
pub use reply::Reply;
pub use runner::{Info, Runner};
pub use state::{Commit, Gitlab, NotFound, Pipeline, Project, Settings};
pub use update::Update;
