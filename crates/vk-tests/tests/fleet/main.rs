//! The control path: hub, node, daemon and a GitLab stand-in as processes, jobs as processes of the
//! agent (`process-vmm`).
//!
//! The programs lie in `VK_TEST_ROOT`; without it the tests say so and return, with it nothing is
//! left out.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what a test finds otherwise than it must be ends it"
)]
#![forbid(unsafe_code)]

mod approval;
mod fleet;
mod kills;
mod lab;
mod left;
mod life;
mod network;
mod operators;
mod program;
mod refusals;
mod secrets;
mod settings;
mod storm;
mod table;
mod tokens;
mod transfers;
mod whole_jobs;
mod wire;
