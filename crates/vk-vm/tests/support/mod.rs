//! What the tests with real programs share.

#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod guest;

use std::path::{Path, PathBuf};

use vk_vm::confine::{Confinement, Walls};

/// The folder of built programs and fixtures, or `None`, said aloud, where it is not set.
pub(crate) fn test_root(test: &str) -> Option<PathBuf> {
    let root = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from);
    if root.is_none() {
        println!("{test} needs the built programs: VK_TEST_ROOT is not set");
    }
    root
}

/// The walls, made by the built `vk`.
pub(crate) fn confinement(root: &Path) -> Confinement {
    Confinement {
        helper: root.join("bin/vk"),
        walls: Walls::Required,
    }
}

/// Numbers of the processes below `root`, itself first.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(
            processes()
                .filter(|(_, of)| *of == parent)
                .map(|(pid, _)| pid),
        );
        at += 1;
    }
    found
}

fn processes() -> impl Iterator<Item = (u32, u32)> {
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        Some((pid, status(pid, "PPid")?.parse().ok()?))
    })
}

/// A field of `/proc/<pid>/status`; `None` once the process is gone.
pub(crate) fn status(pid: u32, field: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// Whether a process is gone (a zombie counts as gone).
pub(crate) fn is_gone(pid: u32) -> bool {
    status(pid, "State").is_none_or(|state| state.starts_with('Z'))
}

/// The processes below `root` that execute a file of this name.
pub(crate) fn named(root: u32, name: &str) -> Vec<u32> {
    let is = |pid: &u32| status(*pid, "Name").is_some_and(|of| name.starts_with(&of));
    tree(root).into_iter().filter(is).collect()
}

/// Asks again until `condition` holds; panics with `what` after 20 s.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !condition() {
        assert!(std::time::Instant::now() < end, "not within 20 s: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
