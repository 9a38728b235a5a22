//! GitLab's own mind: runners, pipelines, jobs, traces. No socket and no clock here: what time it
//! is comes with each call, in milliseconds since the Unix epoch.

mod ack;
pub mod artifact;
mod auth;
mod cancel;
mod counts;
pub mod dotenv;
mod flow;
mod hidden;
mod honesty;
mod images;
mod job;
pub mod ledger;
mod limits;
mod predefined;
mod queue;
mod reaper;
mod reply;
mod response;
mod runner;
mod settings;
pub mod spec;
mod state;
mod stored;
pub mod token;
mod trace;
mod update;
mod upload;
mod variable;
mod variables;

pub use counts::{Counts, Totals};
pub use job::{Job, Status};
pub use predefined::Facts;
pub use queue::{Gate, JobRequest};
pub use reply::Reply;
pub use runner::{Info, Runner};
pub use settings::{CommitMode, RateLimits, Settings};
pub use state::{Commit, Gitlab, NotFound, Pipeline, Project};
pub use stored::Stored;
pub use update::Update;
