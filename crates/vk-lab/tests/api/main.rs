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

mod answers;
mod artifacts;
mod bench;
mod cancel;
mod commit_modes;
mod elsewhere;
mod faults;
mod git;
mod honesty;
mod invariants;
mod lab;
mod load;
mod outages;
mod queue;
mod rates;
mod raw;
mod reapers;
mod registry;
mod runners;
mod tls;
mod trace;
mod update;
