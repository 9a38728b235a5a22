//! A program's metrics and health over HTTP, for its own host alone: `/metrics` in the OpenMetrics
//! text form and `/health`, on a loopback address or a Unix socket.
//!
//! What is counted, and when the program is well, is the program's own: see [`Exhibit`].

#![forbid(unsafe_code)]

mod listen;
mod serve;

pub use listen::{Listen, ListenError, SOCKET_PATH_BYTES};
pub use serve::{Exhibit, serve};
