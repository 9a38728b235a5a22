//! The kernel modules of the boot bundle, in the order its list gives.

use std::fs;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::system::finit_module;

use crate::fault::log;

/// The modules of every machine.
pub(super) const ALWAYS: &str = "modules.list";

/// Loads all modules of a list. One that cannot be loaded is said and passed over: what needs it will fail by
/// name, and a module may be built into this kernel.
pub(super) fn load_all(bundle: &Path, list: &str) {
    // A kernel with everything built in needs no list.
    let Ok(list) = fs::read_to_string(bundle.join(list)) else {
        return;
    };
    for path in paths(&list) {
        if let Err(errno) = load(&bundle.join(path)) {
            log(&format!("load the kernel module {path}: {errno}"));
        }
    }
}

fn load(path: &Path) -> Result<(), Errno> {
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    match finit_module(&file, c"", 0) {
        // Loaded already, or built in.
        Err(Errno::EXIST) => Ok(()),
        result => result,
    }
}

/// The paths in a list: one a line, relative to the bundle; `#` begins a comment.
fn paths(list: &str) -> impl Iterator<Item = &str> {
    list.lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_paths_in_order_with_comments() {
        let list = "# order matters\nmodules/virtio_ring.ko\n\n modules/virtio.ko # ring first\n";
        let found: Vec<&str> = paths(list).collect();
        assert_eq!(found, ["modules/virtio_ring.ko", "modules/virtio.ko"]);
    }
}
