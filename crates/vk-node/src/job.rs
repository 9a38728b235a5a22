//! One job: its directory, the socket in it, its process, and the daemon's side of these.

pub mod attend;
pub mod closing;
mod death;
pub mod directory;
mod left;
pub mod process;
mod serve;
pub(crate) mod socket;
pub mod spawn;
pub mod start_file;
pub mod wire;
