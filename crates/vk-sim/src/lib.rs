//! A whole fleet in one thread: the real cores of daemon, hub and nodes, a model GitLab, hosts
//! whose job processes outlive the node, disks that lose what was not synced, and a network that
//! loses and cuts. Time is virtual and every choice comes from the seed, so a run that fails fails
//! again.
//!
//! Invariants are checked at every step and at the end (`check.rs`). It must know neither sockets
//! nor files, and the cores know nothing of it.

#![forbid(unsafe_code)]

mod approval;
mod breakage;
mod bytes;
mod call;
mod check;
mod clock;
mod daemon;
mod daemon_effects;
mod event;
mod fault;
mod gitlab;
mod host;
mod hub;
mod lease;
mod lost_disk;
mod net;
mod node;
mod outcome;
mod plan;
mod rng;
mod script;
mod store;
mod world;

pub use breakage::Breakage;
pub use fault::{Boundary, Fault, Faults, Victim};
pub use outcome::{Outcome, run};
pub use plan::Plan;
