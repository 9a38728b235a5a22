//! GitLab's job response, field by field, as the contract's table has it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod caches;
mod fields;
mod fixture;
mod lists;
mod members;
mod rows;
mod rules;
mod upstream;
