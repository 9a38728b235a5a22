//! The one shape of every state machine here.
//!
//! A core takes an input and answers with a [`Step`]: records to be made durable, and effects that
//! may be let go once they are. It does no I/O, reads no clock and draws no random number; time
//! arrives as [`Now`] and randomness inside an input. Its edge appends a step's records, syncs, and
//! only then releases the step's effects; a crash loses both together, so nobody was told what is
//! not kept. [`Core::open`] rebuilds the machine from the records alone.
//!
//! This crate must not know anything else of the workspace.

#![forbid(unsafe_code)]

mod core;
mod now;
mod step;
mod variant;

pub use crate::core::{Core, OpenError};
pub use now::Now;
pub use step::Step;
pub use variant::Variant;
