//! The built agent as an ordinary process, spoken to by a host that speaks the protocol.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod archives;
mod control;
mod exec;
mod extraction;
mod files;
mod host;
mod namespaces;
mod selection;
mod untracked;
