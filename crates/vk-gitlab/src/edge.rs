//! The loop that drives the cores: one task owns them and the state files' contents; requests run
//! in tasks of their own and come back as events.
//!
//! A step that keeps something waits for its runner's state file; many steps share one write.

mod calls;
mod daemon;
mod effects;
mod expiry;
mod fetched;
mod gitlab;
mod hub;
mod keep;
mod pace;
mod reload;
mod runner;
mod snapshot;
mod standing;
mod step;
#[cfg(test)]
mod tests;

pub use daemon::{Daemon, Ended};
pub use reload::{Settings, Word};
pub use runner::Prepared;
pub(crate) use snapshot::phase_name;
