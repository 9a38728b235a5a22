//! Is there room.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use vk_node::config::Config;

use super::{Found, chain};

/// Less free disk than this is too little for most jobs.
const FEW_BYTES: u64 = 8 << 30;
/// Fewer free inodes than this too.
const FEW_INODES: u64 = 10_000;

pub(super) fn disk(config: &Config) -> Found {
    let state = &config.state_dir;
    let shown = state.display();
    let (there, exists) = match state.ancestors().find(|path| path.exists()) {
        Some(path) => (path, path == state.as_path()),
        None => (Path::new("/"), false),
    };
    if exists && let Some(wrong) = not_our_own(state) {
        return wrong;
    }
    if !exists && let Some(wrong) = not_to_be_made(state, there) {
        return wrong;
    }
    let room = match rustix::fs::statvfs(there) {
        Ok(room) => room,
        Err(error) => {
            let what = format!("cannot look at {}: {error}", there.display());
            return Found::fail(what, "let this user reach it, or set state_dir");
        }
    };
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let gib = free >> 30;
    if free < FEW_BYTES {
        let what = format!("{gib} GiB are free for {shown}");
        return Found::warn(what, "make room: images, sources and jobs' disks lie there");
    }
    // File systems without a fixed number of inodes say 0.
    if room.f_files > 0 && room.f_favail < FEW_INODES {
        let what = format!("{} inodes are free for {shown}", room.f_favail);
        return Found::warn(
            what,
            "remove files there, or make the file system anew with more",
        );
    }
    match exists {
        true => Found::ok(format!("{shown}, {gib} GiB free")),
        false => Found::ok(format!("{shown} is made by `vk node join`; {gib} GiB free")),
    }
}

/// A state directory that is not there yet, where this user can make none.
fn not_to_be_made(state: &Path, there: &Path) -> Option<Found> {
    let probe = tempfile::Builder::new()
        .prefix(".vk-check-")
        .tempdir_in(there);
    probe.err().map(|error| {
        let shown = state.display();
        let what = format!(
            "{shown} is not there, and this user cannot make it: {}",
            chain(error)
        );
        let remedy = format!(
            "make it for the node's own user (install --directory --mode 0700 --owner vk {shown}), \
             or set state_dir"
        );
        Found::fail(what, remedy)
    })
}

fn not_our_own(state: &Path) -> Option<Found> {
    let shown = state.display();
    let of = match std::fs::metadata(state) {
        Ok(of) => of,
        Err(error) => {
            let what = format!("cannot look at {shown}: {}", chain(error));
            return Some(Found::fail(what, "check as the node's own user"));
        }
    };
    let user = rustix::process::geteuid().as_raw();
    if of.uid() != user {
        let what = format!("{shown} is user {}'s, and this is user {user}", of.uid());
        return Some(Found::fail(what, "check, join and run as one user"));
    }
    let mode = of.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let what = format!("{shown} has mode {mode:03o}: others may look into it");
        return Some(Found::fail(what, format!("chmod 700 {shown}")));
    }
    let probe = tempfile::Builder::new()
        .prefix(".vk-check-")
        .tempfile_in(state);
    probe.err().map(|error| {
        let what = format!("cannot write to {shown}: {}", chain(error));
        Found::fail(what, "make room, or mount it writable")
    })
}

pub(super) fn memory(config: &Config) -> Found {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let Some(total) = mib(&text, "MemTotal:") else {
        return Found::skipped("/proc/meminfo does not say");
    };
    let largest = config.vm.sizes.max_mem_mib;
    let budget = config.schedule.mem_mib.unwrap_or(total);
    let shown = format!("{total} MiB, {budget} of it for jobs; a guest has up to {largest} MiB");
    if largest > budget {
        return Found::fail(
            shown,
            "lower executor.vm.max_mem, or raise executor.schedule.mem_budget",
        );
    }
    if budget > total {
        let remedy = "lower executor.schedule.mem_budget: jobs may be killed for want of memory";
        return Found::warn(shown, remedy);
    }
    Found::ok(shown)
}

fn mib(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_mib() {
        assert_eq!(
            mib("MemTotal:       2048000 kB\nx", "MemTotal:"),
            Some(2000)
        );
        assert_eq!(mib("MemTotal: many", "MemTotal:"), None);
    }
}
