//! The network of one job, without root: a network namespace with a bridge and a tap for the VM,
//! nftables with every address of the host denied, a small resolver, and pasta as the way out
//! through the host's ordinary sockets.
//!
//! One process, the *keeper*, makes and holds all of it ([`keep`]); what it says to the VM's owner
//! is in [`Said`]. It ends when anything of it fails: a job goes on without a network never, and
//! with an open one still less. Everything it made ends with it.
//!
//! Must not know VMs, jobs or images.

#![deny(unsafe_code)]

mod error;
mod keeper;
mod local;
mod needs;
mod netlink;
mod plan;
mod prefix;
mod question;
mod resolver;
mod rules;
mod said;
mod sys;
mod upstream;

pub use error::NetError;
pub use keeper::keep;
pub use local::is_local;
pub use needs::{Needs, TUN};
pub use plan::Plan;
pub use prefix::{Prefix, merged};
pub use said::{SAID_MAX, Said};
