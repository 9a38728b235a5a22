//! Virtual machines for jobs, one way in: start a machine from a bundle and disks, speak with its
//! agent, stop it, say what it used.
//!
//! Holds the `Vmm` trait and its implementations (QEMU's microvm machine; behind a feature, a
//! process in namespaces), the boot bundle, the guest channel's host side, and confinement. Must
//! not know jobs or GitLab.

pub mod bundle;
pub mod confine;
mod elf;
mod sys;
pub mod tsc;
