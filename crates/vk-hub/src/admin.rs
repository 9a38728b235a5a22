//! The admin socket: how the command line speaks to the running hub.
//!
//! One line of JSON each way: `{"v":1,"call":{"op":"nodes"}}`, then `{"ok":…}` or `{"err":"…"}`.
//! The socket has mode 0600: who can open it is an operator.

mod call;
mod client;
mod gitlab;
mod server;
mod view;

pub use call::{Call, Kind, Request};
pub use client::{AdminError, call};
pub use gitlab::{GitLab, PendingRow, ProjectRow, RelayRow, RunnerRow, ServerRow, Target};
pub(crate) use server::warnings;
pub use server::{AdminServer, ServeError};
pub use view::{JobRow, NodeRow, Status};
