//! The node's unit, and the daemon's, under a systemd that runs: a Debian host in a VM, its programs
//! those that were built, with the process stand-in for jobs' VMs.
//!
//! With `VK_LONG` alone: the host is emulated, and its start takes a minute. The programs lie in
//! `VK_TEST_ROOT`, the host's root in `images/systemd.tar` there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what a test finds otherwise than it must be ends it"
)]
#![forbid(unsafe_code)]

mod cpio;
mod fleet;
mod host;
mod units;
