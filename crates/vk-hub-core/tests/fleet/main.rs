//! The fleet core from outside: inputs in, records and effects out. After every step the bench
//! asks the machine whether its parts still agree.

// A bench that does not find what the test is about stops the test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod bench;

mod approvals;
mod cancel;
mod capacity;
mod held;
mod idempotency;
mod jobs;
mod lost;
mod messages;
mod offers;
mod order;
mod output;
mod property;
mod registries;
mod relays;
mod restart;
mod secrets;
mod settle;
mod steering;
mod store;
