//! `vk-lab serve` as a runner sees it: the built program, and a client of nothing but TCP.
//!
//! The program lies in `VK_TEST_ROOT/bin`, or is the one just built.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod artifacts;
mod cancel;
mod faults;
mod git;
mod invariants;
mod lab;
mod queue;
mod raw;
mod runners;
mod trace;
mod update;
