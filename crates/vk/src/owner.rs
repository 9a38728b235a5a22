//! Whose a state directory is: what another user makes there would be in the node's way.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::bail;

/// Says aloud that a node is root's, which nothing of it needs.
pub(crate) fn warn_of_root() {
    if rustix::process::geteuid().is_root() {
        tracing::warn!(
            "this is root's node: jobs' files and VMs are root's, too; have a user of its own for it, \
             as `vk node service install --help` shows"
        );
    }
}

/// Refuses a state directory of another user for a command that writes there; one that is not there is
/// nobody's.
pub(crate) fn refuse_other_users(state: &Path, command: &str) -> anyhow::Result<()> {
    // Whoever opens it says what is wrong with one that cannot be looked at.
    let Ok(of) = std::fs::metadata(state) else {
        return Ok(());
    };
    let owner = of.uid();
    if rustix::process::geteuid().as_raw() != owner {
        bail!(
            "{} is of user {owner}: run this as the node's own user, such as `sudo -u vk {command}`",
            state.display(),
        );
    }
    Ok(())
}
