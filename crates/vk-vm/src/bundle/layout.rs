//! Where things lie in a guest's initramfs. The agent finds them at the same places.

/// The agent, the guest's first process.
pub(super) const INIT: &str = "init";
/// The directory of what is the bundle's own, where the agent looks for the rest.
pub(super) const DIRECTORY: &str = "vk";
/// The modules' files in the order they must be loaded: one path a line, relative to [`DIRECTORY`].
pub(super) const MODULE_LIST: &str = "vk/modules.list";
/// As [`MODULE_LIST`], of those that only a guest with a network needs.
pub(super) const NETWORK_LIST: &str = "vk/network.list";
/// The directory of the modules, relative to [`DIRECTORY`].
pub(super) const MODULES: &str = "modules";
/// The VM's secret: 32 bytes, in an archive of its own behind the bundle's.
pub(super) const SECRET: &str = "vk/secret";
