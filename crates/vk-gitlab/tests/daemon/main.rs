//! The daemon as its operators meet it, between a GitLab and a hub that the tests decide.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod approval;
mod asking;
mod certificates;
mod clocks;
mod costs;
mod gitlab;
mod hub;
mod jobs;
mod log;
mod looking;
mod malformed;
mod reloading;
mod server;
mod stopping;
mod tokens;
mod undelivered;
mod warnings;
mod world;
