//! QEMU's microvm machine.

mod args;
mod firmware;
mod processors;
mod qmp;
mod room;
mod settings;
mod start;

pub(crate) use args::{VHOST_SOCKET, VsockDevice};
pub use qmp::{Qmp, QmpError};
pub(crate) use room::want_of_room;
pub use settings::QemuSettings;
pub use start::Qemu;
