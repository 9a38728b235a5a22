//! `vk check`, on hosts that lack something.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The program: as staged for a whole test run, else as built beside this test.
fn vk() -> PathBuf {
    match std::env::var_os("VK_TEST_ROOT") {
        Some(root) => Path::new(&root).join("bin/vk"),
        None => PathBuf::from(env!("CARGO_BIN_EXE_vk")),
    }
}

/// What the check of the network finds under a configuration, in a mount namespace where a shell has
/// done something first; and the exit code.
fn network(config: &str, first: &str) -> (Option<i32>, Value) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vk.toml");
    fs::write(&file, format!("state_dir = \"state\"\n{config}")).unwrap();
    let script = format!("set -e; {first}; exec \"$0\" \"$@\"");
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .arg(vk())
        .args(["check", "--only", "network", "--json", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    let findings: Vec<Value> = serde_json::from_slice(&ran.stdout).expect(&said);
    assert_eq!(findings.len(), 1);
    (ran.status.code(), findings[0].clone())
}

const SWITCH: &str = "[net]\nmode = \"switch\"\n";

#[test]
fn a_network_that_nobody_wants_is_not_looked_at() {
    let (code, found) = network("", "true");
    assert_eq!(
        (code, found["verdict"].as_str()),
        (Some(0), Some("skipped"))
    );
}

#[test]
fn what_a_network_lacks_is_told_with_what_to_do() {
    let hide = |program: &str| {
        format!(
            "for place in /usr/local/bin /usr/local/sbin /usr/bin /usr/sbin /bin /sbin; do
                 [ ! -e $place/{program} ] || mount --bind /dev/null $place/{program}
             done"
        )
    };
    for (program, package) in [("pasta", "passt"), ("nft", "nftables")] {
        let (code, found) = network(SWITCH, &hide(program));
        assert_eq!(code, Some(1), "{found}");
        let what = found["what"].as_str().unwrap();
        assert!(what.starts_with(program), "{found}");
        let remedy = format!("on Debian: apt-get install {package}");
        assert_eq!(found["remedy"], remedy, "{found}");
    }
    let closed = "mount -t tmpfs none /dev/net || mount -t tmpfs none /dev";
    let (code, found) = network(SWITCH, closed);
    assert_eq!(code, Some(1), "{found}");
    let what = found["what"].as_str().unwrap();
    assert!(
        what.contains("/dev/net/tun") && what.contains("0666"),
        "{found}"
    );
}

#[test]
fn a_network_without_walls_or_without_vms_is_refused() {
    for key in ["unconfined = true", "process_agent = \"/bin/true\""] {
        let config = format!("{SWITCH}[executor.vm]\n{key}\n");
        let (code, found) = network(&config, "true");
        assert_eq!(code, Some(1), "{found}");
        let key = key.split(' ').next().unwrap();
        let remedy = found["remedy"].as_str().unwrap();
        assert!(remedy.contains(&format!("executor.vm.{key}")), "{found}");
    }
}
