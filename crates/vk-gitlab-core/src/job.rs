//! One job from GitLab's 201 to its end: one machine a job.
//!
//! Two sides move on their own: the hub's (submit, follow, cancel, settle) and GitLab's (commit,
//! trace, final state). What is kept of both is [`JobRecord`]; everything under way is derived from
//! it and from what the two said in this life, so a restart needs nothing else.

mod close;
mod ending;
mod finish;
mod follow;
mod gitlab;
mod hub_calls;
mod io;
mod machine;
mod note;
mod output_end;
mod record;
mod relay;
mod store;
mod submit;
mod trace;

#[cfg(test)]
mod tests;

pub use io::{
    CallId, Config, Effect, Ended, GitLabAnswer, Input, JobStatus, Note, OutputRead, Record,
    SafePoint, Span, Taken, Update, UpdateState, WhyGivenUp,
};
pub use machine::Job;
pub use output_end::Closing;
pub use record::{JobRecord, Phase};

/// A step of this core.
type Step = vk_step::Step<Record, Effect>;
