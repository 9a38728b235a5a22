//! `vk node gc` as people and scripts call it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// The program: as staged for a whole test run, else as built beside this test.
fn vk() -> PathBuf {
    match std::env::var_os("VK_TEST_ROOT") {
        Some(root) => Path::new(&root).join("bin/vk"),
        None => PathBuf::from(env!("CARGO_BIN_EXE_vk")),
    }
}

fn gc(state: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    // Whatever this host has as its configuration.
    let config = state.parent().unwrap().join("config.toml");
    fs::write(&config, "").unwrap();
    let run = Command::new(vk())
        .args(["node", "gc", "--config"])
        .arg(config)
        .arg("--state-dir")
        .arg(state)
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (run.status.code(), text(&run.stdout), text(&run.stderr))
}

fn made(path: &Path, days: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, vec![1; 30_000]).unwrap();
    let at = SystemTime::now() - Duration::from_secs(days * 86_400);
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(at).unwrap();
}

#[test]
fn what_nobody_needs_goes_as_was_told_before() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    for (name, days) in [("old", 40), ("new", 2)] {
        made(&state.join(format!("mirrors/{name}.git/HEAD")), days);
        made(&state.join(format!("mirrors/{name}.lock")), days);
    }
    fs::create_dir_all(state.join("node/jobs")).unwrap();
    made(&state.join("history/5-web-00/build-1"), 30);
    let (code, would, said) = gc(&state, &["--dry-run", "--json"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(state.join("mirrors/old.git").exists());
    let would: serde_json::Value = serde_json::from_str(&would).unwrap();
    assert_eq!(would["dry_run"], true);
    let count = |what: &str| {
        let rows = would["removed"].as_array().unwrap();
        let row = rows.iter().find(|row| row["what"] == what).unwrap();
        row["count"].as_u64().unwrap()
    };
    assert_eq!(count("mirrors with their LFS files"), 1);
    assert_eq!(count("figures of past runs"), 1);
    assert_eq!((count("job directories"), count("images")), (0, 0));
    assert!(would["bytes"].as_u64().unwrap() >= 60_000);
    let (code, did, said) = gc(&state, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(did.contains("FREED") && did.contains("in all"), "{did}");
    assert!(!state.join("mirrors/old.git").exists());
    assert!(state.join("mirrors/new.git").exists());
    let (_, after, _) = gc(&state, &["--json"]);
    let after: serde_json::Value = serde_json::from_str(&after).unwrap();
    assert_eq!(after["bytes"], 0);
}

#[test]
fn where_there_is_no_node_nothing_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("nowhere");
    let (code, _, said) = gc(&state, &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("nowhere"), "{said}");
    assert!(!state.exists());
}
