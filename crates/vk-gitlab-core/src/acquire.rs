//! Asking GitLab for jobs: one machine a runner.
//!
//! The order of ADM-30, for each of the runner's job requests (lanes): no pause, approval, a slot
//! free, room on the fleet, a reservation, the slot, the request. Every input changes what is known;
//! [`machine`] then derives what is to be done, so that no path can pass a gate by.

mod capacity;
mod gates;
mod health;
mod io;
mod lane;
mod last_update;
mod lease;
mod machine;
mod note;
mod releases;
mod request;
mod reserve;
mod verify;

#[cfg(test)]
mod tests;

pub use io::{
    Config, Effect, Input, LaneId, Note, Record, RequestAnswer, RequestOutcome, Session,
    VerifyAnswer,
};
pub use machine::Acquire;

/// What a job request is bounded to, and what a lease must outlast when one starts (ADM-11,
/// ADM-39).
pub const REQUEST_BOUND: std::time::Duration = std::time::Duration::from_secs(60);

/// A step of this core.
type Step = vk_step::Step<Record, Effect>;
