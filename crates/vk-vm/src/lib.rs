//! Virtual machines for jobs, one way in: start a machine from a bundle and disks, speak with its
//! agent, stop it, say what it used.
//!
//! Holds the `Vmm` trait and its implementations (QEMU's microvm machine; behind a feature, a
//! process in namespaces), the boot bundle, the guest channel's host side, and confinement. Must
//! not know jobs or GitLab.

pub mod accelerator;
pub mod bundle;
pub mod channel;
pub mod confine;
mod console;
pub mod death;
pub mod disk;
mod elf;
mod launching;
mod machine;
mod network;
#[cfg(feature = "process-vmm")]
pub mod process;
pub mod programs;
pub mod qemu;
mod sockets;
mod start_error;
mod supervise;
mod sys;
pub mod tsc;
pub mod usage;
mod vm;
mod vsock;

pub use machine::{
    Accelerator, CPUS_MAX, DISKS_MAX, Disk, MEMORY_MIN, Machine, ROLE_MAX, Starting, Vmm,
};
pub use network::NetMode;
pub use start_error::StartError;
pub use vm::{Boot, Stopped, Vm};
pub use vsock::Vsock;
