//! What else must be on the host, and what must not.

use vk_node::config::Config;
use vk_node::own_runner;
use vk_vm::programs::{find, find_beside};

use super::Found;

/// Programs that jobs need, and the Debian package that has each.
const PROGRAMS: [(&str, &str); 3] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mke2fs", "e2fsprogs"),
    ("git", "git"),
];
/// Our own, beside `vk` or in PATH, where the host has no vsock of its own for guests.
const VSOCK: &str = "vhost-device-vsock";

pub(super) fn programs(config: &Config) -> Found {
    let needed = PROGRAMS.iter().filter(|(name, _)| {
        // Jobs without VMs need none that make them.
        config.vm.process_agent.is_none() || *name == "git"
    });
    let missing: Vec<_> = needed.filter(|(name, _)| find(name).is_none()).collect();
    if !missing.is_empty() {
        let join = |of: fn(&(&'static str, &'static str)) -> &'static str, with: &str| {
            let all: Vec<_> = missing.iter().map(|one| of(one)).collect();
            all.join(with)
        };
        let what = format!("not in PATH: {}", join(|one| one.0, ", "));
        let remedy = format!("on Debian: apt-get install {}", join(|one| one.1, " "));
        return Found::fail(what, remedy);
    }
    let device = std::path::Path::new("/dev/vhost-vsock");
    let no_vsock = find_beside(VSOCK).is_none() && find(VSOCK).is_none() && !device.exists();
    if config.vm.process_agent.is_none() && no_vsock {
        let what = format!("neither {VSOCK} nor {}", device.display());
        let remedy = format!("load vhost_vsock, or put {VSOCK} beside vk");
        return Found::fail(what, remedy);
    }
    Found::ok("QEMU, mke2fs, git and a vsock for guests")
}

pub(super) fn runner(config: &Config) -> Found {
    // What was found says what to do as well: the hub shows it too.
    match own_runner::of_host(config) {
        None => Found::ok("none on this host, or none that matters: [node] runner = \"none\""),
        Some(what) => Found::fail(what, ""),
    }
}
