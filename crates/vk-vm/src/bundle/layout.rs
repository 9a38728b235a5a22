//! Where things lie in a guest's initramfs. The agent finds them at the same places.

/// The agent, the guest's first process.
pub(super) const INIT: &str = "init";
/// The directory of modules and of what else is the guest's own.
pub(super) const DIRECTORY: &str = "vk";
/// The modules' files in the order they must be loaded: one absolute path a line.
pub(super) const MODULE_LIST: &str = "vk/modules";
/// The directory of the modules.
pub(super) const MODULE_DIRECTORY: &str = "vk/lib";
/// The VM's secret: 32 bytes, in an archive of its own behind the bundle's.
pub(super) const SECRET: &str = "vk/secret";
