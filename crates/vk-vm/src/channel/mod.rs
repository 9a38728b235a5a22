//! The host's side of the channel to a guest's agent.
//!
//! The guest dials; what does not open with the VM's secret is closed without a word. One control
//! stream carries requests and answers, every command and transfer has a stream of its own. Nothing
//! here closes one half of a connection: the user-space vsock turns that into a close of both.

mod connection;
mod control;
mod error;
mod exec;
#[cfg(test)]
mod fuzz;
mod guest;
mod listener;
mod transfer;

pub use error::GuestError;
pub use exec::{Captured, ExecEvent, ExecHandle, Input, Output, Running};
pub use guest::{Found, Guest, unix_ns};
pub use transfer::Transfer;

pub(crate) use connection::Connection;
pub(crate) use control::{ControlEnd, connect};
pub(crate) use listener::{Counted, Expected, Listener};
