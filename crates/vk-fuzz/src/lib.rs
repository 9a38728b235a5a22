//! How many inputs a fuzzer has, and which: `VK_FUZZ` says how many, `VK_SEED` which; without it
//! `VK_LONG` makes a million. What was tried is counted as it is judged, and told in one line, with
//! its rate. The same seed and count are the same inputs.
//!
//! For tests only: no program has it.

#![forbid(unsafe_code)]
#![allow(
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test says what is wrong so"
)]

mod plan;
mod tally;

pub use plan::Plan;
pub use tally::{Tally, inputs, inputs_of};
