//! The node's state machine: what it grants, which jobs it took, what of their output the hub has,
//! and when a result may be sent.
//!
//! Pure: inputs in, records and effects out ([`vk_step`]). It must not know files, sockets,
//! clocks, processes, or output bytes: of output it sees job, offset and length.
//!
//! A job's way: [`Record::Started`] → [`Effect::Spawn`] → its process's [`JobEvent`]s →
//! [`Record::Finished`] → every byte acked → the result, until [`Record::Recorded`] →
//! [`Effect::Remove`] → [`Record::Dropped`].

#![forbid(unsafe_code)]

mod cancel;
mod config;
mod core;
mod death;
pub mod io;
mod jobs;
mod leases;
pub mod ledger;
mod output;
mod remembered;
mod replay;
mod results;
mod session;
pub mod sizing;
mod slots;
mod standing;
mod starts;
mod store;
mod timers;

pub use crate::core::NodeCore;
pub use config::Config;
pub use death::{By, Death};
pub use io::{Budgets, Effect, Input, JobEvent, Record, Stop};

#[cfg(test)]
mod tests;
