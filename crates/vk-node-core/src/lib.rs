//! The node's state machine: what it grants, which jobs it took, what of their output the hub has,
//! and when a result may be sent.
//!
//! Pure: inputs in, records and effects out ([`vk_step`]). It must not know files, sockets,
//! clocks, processes, or output bytes: of output it sees job, offset and length.

#![forbid(unsafe_code)]

mod config;
pub mod io;
#[allow(dead_code)]
pub mod ledger;
pub mod sizing;
#[allow(dead_code)]
mod slots;
#[allow(dead_code)]
mod timers;

pub use config::Config;
pub use io::{Budgets, Effect, Input, JobEvent, Record, Stop};
