//! The set-up scripts, run against stand-ins for the programs of the machine: no test installs
//! anything, and none needs root or a network.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot prepare its machine has failed"
)]

mod apt;
mod machine;
mod packages;
mod rust;
