//! `vk-lab run`: whole pipelines on this host, as a user runs them. Most with jobs as processes of
//! the agent (`process-vmm`), the examples in microVMs.
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

mod ends;
mod machines;
mod pipelines;
mod refusals;
mod run;
