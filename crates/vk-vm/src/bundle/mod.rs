//! The boot bundle: a directory with what every guest starts from.
//!
//! `kernel`, `initramfs` (the agent as `/init`, and modules) and `manifest.json`. It is packed once
//! for a kernel and an agent, and read-only afterwards.

mod bzimage;
mod cpio;
mod error;
mod layout;
mod lean;
mod lz4_legacy;
mod manifest;
mod modules;
mod pack;
mod secret;

pub use error::BundleError;
pub use manifest::{Bundle, FileIdentity, KernelForm, Manifest, find};
pub use pack::{Pack, pack};
pub(crate) use secret::write_initrd;
