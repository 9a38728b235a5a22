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
    checked("network", config, first)
}

/// The same of another check.
fn checked(only: &str, config: &str, first: &str) -> (Option<i32>, Value) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vk.toml");
    fs::write(&file, format!("state_dir = \"state\"\n{config}")).unwrap();
    let script = format!("set -e; {first}; exec \"$0\" \"$@\"");
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .arg(vk())
        .args(["check", "--only", only, "--json", "--config"])
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

/// A `/dev` of the test's own, with `kvm` in it as a shell makes it there; what the check of KVM finds,
/// where the guest is this bundle.
fn kvm(bundle: &Path, make: &str) -> Value {
    let dev = tempfile::tempdir().unwrap();
    let first = format!(
        "cd {}; mount -t tmpfs none .; cd .
         for device in null zero full random urandom tty; do
             touch $device; mount --bind /dev/$device $device
         done
         ln -s /proc/self/fd fd; mkdir shm
         {make}
         mount --rbind . /dev; cd /",
        dev.path().display()
    );
    // The walls' own needs are another check's.
    let config = format!("[executor.vm]\nbundle = {bundle:?}\n");
    let (code, found) = checked("kvm", &config, &first);
    // Guests run without it, slower.
    assert_eq!(code, Some(0), "{found}");
    assert_eq!(found["verdict"], "warn", "{found}");
    found
}

#[test]
fn a_kvm_that_is_not_there_or_may_not_be_opened_is_told_with_what_to_do() {
    let nowhere = Path::new("/nowhere");
    let absent = kvm(nowhere, "true");
    let what = absent["what"].as_str().unwrap();
    assert!(what.contains("/dev/kvm does not exist"), "{absent}");
    assert!(what.contains("load kvm_intel or kvm_amd"), "{absent}");
    assert!(what.contains("VMs run without KVM"), "{absent}");
    // Root may open what it likes, as long as it has root's capabilities.
    let plain = "exec setpriv --bounding-set=-all --inh-caps=-all \"$0\" \"$@\"";
    let denied = kvm(
        nowhere,
        &format!("touch kvm; chmod 0 kvm; mount --rbind . /dev; cd /; {plain}"),
    );
    let what = denied["what"].as_str().unwrap();
    assert!(what.contains("this user may not open /dev/kvm"), "{denied}");
    assert!(what.contains("group that owns the device"), "{denied}");
}

/// A device that opens and does not speak KVM's API, as one of another version would not.
#[test]
fn a_kvm_of_another_version_is_told_by_what_qemu_says_of_it() {
    let Some(root) = std::env::var_os("VK_TEST_ROOT") else {
        println!("needs a boot bundle: VK_TEST_ROOT is not set");
        return;
    };
    let bundle = Path::new(&root).join("guest");
    let found = kvm(&bundle, "touch kvm; mount --bind /dev/null kvm");
    let what = found["what"].as_str().unwrap();
    assert!(what.contains("QEMU fails under /dev/kvm"), "{found}");
    assert!(what.contains("kvm version too old"), "{found}");
    assert!(what.contains("VMs run without KVM"), "{found}");
}

#[test]
fn a_configuration_that_is_refused_fails_whatever_else_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vk.toml");
    fs::write(&file, "[registry]\nrepo = \"http://r.example.com\"\n").unwrap();
    let check = |only: &str| {
        let mut command = Command::new(vk());
        command.args(["check", "--only", only, "--json", "--config"]);
        let ran = command.arg(&file).output().unwrap();
        let findings: Vec<Value> = serde_json::from_slice(&ran.stdout).unwrap();
        (ran.status.code(), findings)
    };
    let (code, findings) = check("registry");
    assert_eq!(code, Some(1), "{findings:?}");
    assert_eq!(findings[0]["check"], "config");
    assert_eq!(findings[0]["verdict"], "fail");
    // And a state directory that nobody can make.
    fs::write(&file, "state_dir = \"/proc/nowhere/vk\"\n").unwrap();
    let (code, findings) = check("disk");
    assert_eq!(code, Some(1), "{findings:?}");
    let remedy = findings[0]["remedy"].as_str().unwrap();
    assert!(remedy.contains("install --directory"), "{remedy}");
}
