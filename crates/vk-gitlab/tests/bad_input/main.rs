//! What the built program refuses at its start, and in which words: the file, the line where there is
//! one, what is wrong, and what to do.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod arguments;
mod desk;
mod files;
mod keys;
mod man;
mod tokens;
mod unit;
mod urls;
