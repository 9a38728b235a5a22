//! The daemon: the task that owns the core, the thread that owns the journal, and what it runs on.

mod act;
mod actor;
mod disk;
mod operate;
mod sweep;
mod top;

pub(crate) use actor::Message;
pub(crate) use sweep::known;
pub use top::{DaemonError, Setup, run};

/// How many jobs these records know a directory of.
pub(crate) fn known_jobs(records: &[vk_node_core::Record]) -> usize {
    sweep::known(records).len()
}
