//! The edge around the fleet core: one task owns the core, one thread owns the disk.
//!
//! The task gives the core its inputs, gathers the steps, hands them to the thread as one batch
//! whenever that is idle, and releases a batch's effects, in order, once it is durable. A step
//! without records or output is released at once where nothing before it is unsynced.

mod actor;
mod disk;
#[cfg(test)]
mod failing;
mod handle;

pub use actor::{Fleet, FleetError, OpenStore};
pub use disk::{DiskError, Opened};
pub use handle::{FleetHandle, Gone, RelaySession, Reply, Session};
