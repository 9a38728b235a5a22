//! Walls around every host process that a guest can reach, the VMM and the vsock daemon, and around
//! those that read what others wrote.
//!
//! Three stages, each an exec of this same program (a user namespace needs a single-threaded
//! process, and the owner of a VM is none):
//!
//! 1. **enter** leaves the owner's namespaces for new ones, starts the holder as process 1 of a
//!    new PID namespace, and waits for it: it is the root of the tree whose use is counted.
//! 2. **hold**, the holder, starts programs as the owner orders over a socket and says how they
//!    end. It exits when the socket closes; the kernel then kills everything in its namespace, so
//!    an owner that dies, however it dies, leaves nothing behind.
//! 3. **exec** makes one program's own user, mount, PID, network, IPC, UTS and cgroup namespaces,
//!    pivots into a view of only what the program needs, gives up every capability, sets
//!    `no_new_privs`, forbids core dumps and dangerous system calls, and executes the program.
//!
//! A program that is one of many that come and go, as each git of the host's, has a stage of its own:
//! **beside** ([`run_walled`]) makes the same walls around it, leaves it its owner's streams, and the
//! host's network where that is what it is for.
//!
//! Paths are the same inside a view as outside, so a program's arguments need no translation, and
//! what it says in errors can be found.

mod anticipated;
mod drop_rights;
mod enter;
mod error;
mod execute;
mod hold;
mod identity;
mod needs;
mod order;
mod owner;
mod program;
mod system_calls;
mod view;
mod walled;

pub use enter::enter;
pub use error::ConfineError;
pub use execute::execute;
pub use hold::hold;
pub use needs::needed_by;
pub use order::{Exit, INHERITED};
pub use owner::{Holder, Launched};
pub use program::{Access, Confinement, Confines, Place, Program, Walls};
pub use walled::{UNWALLED, Walled, run_walled};

pub(crate) use anticipated::Anticipated;

/// This very program, even after its file was replaced by a newer one.
const OWN_PROGRAM: &str = "/proc/self/exe";
