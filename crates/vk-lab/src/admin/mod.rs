//! The admin socket: one JSON object a line in, one or more out.

mod client;
mod help;
mod protocol;

pub use client::{CallError, call};
pub(crate) use help::{ADMIN, INJECT};
pub use protocol::{AdminError, Command, Expected, FaultPlan, Listen, RunnerEdit, SettingsEdit};
