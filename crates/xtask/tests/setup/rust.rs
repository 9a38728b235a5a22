//! A cargo that is recent enough, through rustup where there is none. The installer is a stand-in.

use std::path::PathBuf;

use crate::machine::{Machine, Run};

/// What a cargo of some version answers.
fn cargo(version: &str) -> String {
    format!("case $1 in --version) echo cargo {version} '(x 2026-01-01)';; *) exit 0;; esac")
}

/// The script of a program that puts a cargo of some version where rustup puts it.
fn puts_cargo(machine: &Machine, version: &str) -> String {
    let home = machine.path("home/.cargo/bin");
    let (home, cargo) = (home.display(), cargo(version));
    format!(
        "mkdir -p {home}\ncat >{home}/cargo <<'E'\n#!/bin/bash\n{cargo}\nE\nchmod 755 {home}/cargo"
    )
}

/// An installer that brings a cargo of some version.
fn installer(machine: &Machine, version: &str) -> PathBuf {
    machine.program("stand-in-init", &puts_cargo(machine, version))
}

fn run(machine: &Machine, installer: &PathBuf) -> Run {
    // No cargo or rustup of the machine that runs this test may answer.
    let path = machine.path("bin");
    let mut command = machine.command("rust.sh");
    command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
    Run::of(&command.env("VK_RUSTUP_INIT", installer).output().unwrap())
}

#[test]
fn a_recent_cargo_is_left_alone() {
    for version in ["1.95.0", "1.100.2", "2.0.0"] {
        let machine = Machine::new();
        machine.program("cargo", &cargo(version));
        let installer = installer(&machine, "1.95.0");
        let run = run(&machine, &installer);
        assert!(run.ok, "{}", run.said);
        assert_eq!(machine.calls("stand-in-init"), [] as [&str; 0]);
        assert_eq!(run.said, "");
    }
}

#[test]
fn where_there_is_no_cargo_rustup_brings_the_stable_one_once() {
    let machine = Machine::new();
    // A cargo of the system, if any, must not answer.
    machine.program("cargo", "exit 127");
    let installer = installer(&machine, "1.95.0");
    let first = run(&machine, &installer);
    assert!(first.ok, "{}", first.said);
    assert!(
        first.said.contains("no cargo from 1.95 on"),
        "{}",
        first.said
    );
    let calls = machine.calls("stand-in-init");
    assert_eq!(calls.len(), 1);
    for wanted in [
        "-y",
        "--no-modify-path",
        "--default-toolchain stable",
        "rustfmt",
        "clippy",
    ] {
        assert!(calls[0].contains(wanted), "{calls:?}");
    }
    let second = run(&machine, &installer);
    assert!(second.ok && second.said.is_empty(), "{}", second.said);
    assert_eq!(
        machine.calls("stand-in-init").len(),
        1,
        "the second run finds it there"
    );
}

#[test]
fn a_cargo_that_is_too_old_is_joined_by_a_recent_one() {
    let machine = Machine::new();
    machine.program("cargo", &cargo("1.85.1"));
    let installer = installer(&machine, "1.97.0");
    let run = run(&machine, &installer);
    assert!(run.ok, "{}", run.said);
    assert_eq!(machine.calls("stand-in-init").len(), 1);
}

#[test]
fn an_installer_that_fails_is_quoted() {
    let machine = Machine::new();
    machine.program("cargo", "exit 127");
    let installer = machine.program(
        "stand-in-init",
        "echo the mirror does not answer >&2; exit 7",
    );
    let run = run(&machine, &installer);
    assert!(!run.ok);
    assert!(
        run.said.contains("the mirror does not answer"),
        "{}",
        run.said
    );
    assert!(run.said.contains("rustup-init failed"), "{}", run.said);
}

#[test]
fn a_toolchain_that_is_still_too_old_is_named() {
    let machine = Machine::new();
    machine.program("cargo", "exit 127");
    let installer = installer(&machine, "1.94.9");
    let run = run(&machine, &installer);
    assert!(!run.ok);
    assert!(run.said.contains("cargo is cargo 1.94.9"), "{}", run.said);
    assert!(run.said.contains("1.95 is needed"), "{}", run.said);
}

#[test]
fn rustup_that_is_there_is_asked_for_the_toolchain() {
    let machine = Machine::new();
    machine.program("cargo", "exit 127");
    machine.program("rustup", &puts_cargo(&machine, "1.96.0"));
    let installer = installer(&machine, "1.95.0");
    let run = run(&machine, &installer);
    assert!(run.ok, "{}", run.said);
    assert_eq!(machine.calls("stand-in-init"), [] as [&str; 0]);
    assert!(machine.calls("rustup")[0].starts_with("toolchain install stable"));
}

#[test]
fn a_full_disk_is_said_before_anything_is_downloaded() {
    let machine = Machine::new();
    machine.program("cargo", "exit 127");
    machine.program("df", "printf 'h\\nd 1 1 2048 1 /\\n'");
    let installer = installer(&machine, "1.95.0");
    let run = run(&machine, &installer);
    assert!(!run.ok);
    assert!(run.said.contains("there are 2 MiB free"), "{}", run.said);
    assert_eq!(machine.calls("stand-in-init"), [] as [&str; 0]);
}
