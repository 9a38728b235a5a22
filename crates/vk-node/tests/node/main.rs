//! The node's daemon and job processes as real processes, against a hub in the test.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod daemon;
mod deaths;
mod files;
mod gate;
mod hub;
mod jobs;
mod join;
#[cfg(feature = "kill-points")]
mod kills;
mod metrics;
mod operate;
#[cfg(feature = "kill-points")]
mod releases;
mod scripted;
mod session;
mod store;
mod told;
