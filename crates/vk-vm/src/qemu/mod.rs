//! QEMU's microvm machine.

mod args;
mod firmware;
mod qmp;
mod start;

pub use qmp::{Qmp, QmpError};
pub use start::{Qemu, QemuSettings};
pub(crate) use start::find_qemu;
pub(crate) use args::VHOST_SOCKET;
