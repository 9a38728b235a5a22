//! The built programs with real VMs.
//!
//! They lie in `VK_TEST_ROOT`; without it the tests say so and return, with it nothing is left out.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what a test finds otherwise than it must be ends it"
)]
#![forbid(unsafe_code)]

mod entry;
mod inodes;
mod inspector;
mod job;
mod layout;
mod refusals;
mod rich;
mod root_fs;
