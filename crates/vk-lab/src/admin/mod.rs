//! The admin socket: one JSON object a line in, one or more out.

mod client;
mod protocol;

pub use client::{CallError, call};
pub use protocol::{AdminError, Command, Expected, FaultPlan, Listen, RunnerEdit, SettingsEdit};
