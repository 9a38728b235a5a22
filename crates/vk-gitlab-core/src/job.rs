//! One job from GitLab's 201 to its end: one machine a job.

mod io;

pub use io::{
    CallId, Config, Effect, Ended, GitLabAnswer, Input, JobStatus, Note, OutputRead, Record,
    SafePoint, Span, Taken, Update, UpdateState, WhyGivenUp,
};
