//! Where the control path ends: cancels of silent jobs, what cannot be done, and full disks, against
//! the built programs.
//!
//! The programs lie in `VK_TEST_ROOT`; without it the tests say so and return, with it nothing is
//! left out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what a test finds otherwise than it must be ends it"
)]
#![forbid(unsafe_code)]

mod cancel;
mod disk;
mod faults;
mod fleet;
mod full;
mod host;
mod lab;
mod malformed;
mod pages;
#[path = "../fleet/program.rs"]
mod program;
mod refusals;
mod registry;
mod service;
