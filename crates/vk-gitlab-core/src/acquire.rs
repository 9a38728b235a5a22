//! Asking GitLab for jobs: one machine a runner.

mod io;

pub use io::{
    Config, Effect, Input, LaneId, Note, Record, RequestAnswer, RequestOutcome, Session,
    VerifyAnswer,
};
