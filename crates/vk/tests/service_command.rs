//! `vk node service …`, and the exit codes that its unit goes by.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program: as staged for a whole test run, else as built beside this test.
fn vk() -> PathBuf {
    match std::env::var_os("VK_TEST_ROOT") {
        Some(root) => Path::new(&root).join("bin/vk"),
        None => PathBuf::from(env!("CARGO_BIN_EXE_vk")),
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A systemd that takes everything.
fn systemctl(dir: &Path) -> String {
    let program = dir.join("systemctl");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    format!("{}:/usr/bin:/bin", dir.display())
}

#[test]
fn uninstall_looks_for_jobs_where_the_nodes_configuration_has_its_state() {
    let dir = tempfile::tempdir().unwrap();
    let units = dir.path().join("units");
    fs::create_dir(&units).unwrap();
    let unit = units.join("vk-node.service");
    fs::write(&unit, "[Service]\nUser=nobody\n").unwrap();
    let config = dir.path().join("config.toml");
    fs::write(&config, "state_dir = \"elsewhere\"\n").unwrap();
    let job = dir.path().join("elsewhere/node/jobs").join("07".repeat(16));
    fs::create_dir_all(&job).unwrap();
    let path = systemctl(dir.path());
    let uninstall = |more: &[&str]| {
        let mut command = Command::new(vk());
        command.args(["node", "service", "uninstall", "--unit-dir"]);
        command.arg(&units).arg("--config").arg(&config).args(more);
        command.env("PATH", &path).output().unwrap()
    };
    let refused = uninstall(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("1 jobs are here"),
        "{}",
        said(&refused)
    );
    assert!(unit.exists());
    fs::write(&config, "state_dir = [\"elsewhere\"]\n").unwrap();
    let unknown = uninstall(&[]);
    assert!(said(&unknown).contains("--state-dir"), "{}", said(&unknown));
    assert!(unit.exists());
    fs::write(&config, "state_dir = \"elsewhere\"\n").unwrap();
    fs::remove_dir(&job).unwrap();
    let gone = uninstall(&[]);
    assert!(gone.status.success(), "{}", said(&gone));
    let text = String::from_utf8_lossy(&gone.stdout).into_owned();
    assert!(text.contains("elsewhere stays"), "{text}");
    assert!(!unit.exists());
}

#[test]
fn a_node_that_cannot_run_yet_ends_as_its_unit_does_not_restart_it_for() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.toml");
    let run = |text: &str| {
        fs::write(&config, text).unwrap();
        let mut command = Command::new(vk());
        command.args(["node", "run", "--config"]).arg(&config);
        command.output().unwrap()
    };
    let printed = Command::new(vk())
        .args(["node", "service", "install", "--user", "vk", "--print"])
        .output()
        .unwrap();
    assert!(printed.status.success(), "{}", said(&printed));
    let unit = String::from_utf8(printed.stdout).unwrap();
    assert!(
        unit.starts_with("# What is supposed here:\n# - the program is "),
        "{unit}"
    );
    let codes = unit
        .lines()
        .find_map(|line| line.strip_prefix("RestartPreventExitStatus="))
        .unwrap();
    let codes: Vec<i32> = codes.split(' ').map(|code| code.parse().unwrap()).collect();
    for (text, why) in [
        ("state_dir = \"state\"\n", "has joined no hub"),
        ("state = 3\n", "unknown field"),
    ] {
        let ended = run(text);
        assert!(said(&ended).contains(why), "{}", said(&ended));
        let code = ended.status.code().unwrap();
        assert_eq!(code, 78);
        assert!(codes.contains(&code), "{codes:?}");
    }
}

/// What systemd itself says of the unit, where there is one.
#[test]
fn systemd_finds_nothing_wrong_with_the_unit() {
    let dir = tempfile::tempdir().unwrap();
    let unit = include_str!("../../../packaging/vk-node.service");
    let file = dir.path().join("vk-node.service");
    // The program is on no host that only tests.
    fs::write(
        &file,
        unit.replace("ExecStart=/usr/bin/vk ", "ExecStart=/bin/true "),
    )
    .unwrap();
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(arguments).arg(&file).output().ok()
    };
    assert!(unit.contains("\nKillMode=process\n"));
    let Some(verified) = analyze(&["verify", "--man=no"]) else {
        println!("systemd-analyze is not here: the unit is not verified");
        return;
    };
    assert!(verified.status.success(), "{}", said(&verified));
    // Units of the host that it depends on are the host's affair.
    let of_ours = |line: &str| line.contains("vk-node.service");
    assert!(!said(&verified).lines().any(of_ours), "{}", said(&verified));
    // Namespaces, which guests need, are most of what is left open.
    if let Some(security) = analyze(&["security", "--offline=true", "--threshold=70"]) {
        let text = String::from_utf8_lossy(&security.stdout).into_owned();
        assert!(security.status.success(), "{text}{}", said(&security));
    }
}
