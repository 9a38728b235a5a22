//! Debian packages: with root, with sudo, with neither.

use crate::machine::Machine;

/// Every package the build asks for, as `dpkg-query` lists it.
const ALL: &str = "for p in gcc libc6-dev make pkg-config git ca-certificates; do \
                   echo installed $p; done";
/// The same without two.
const TWO_MISSING: &str = "for p in gcc libc6-dev make git; do echo installed $p; done";
/// Apt that knows every package.
const KNOWS: &str = "printf 'x:\\n  Candidate: 1.0\\n'";
/// Sudo that asks for no password.
const SUDO: &str = "while [ \"${1:0:1}\" = - ]; do shift; done; exec \"$@\"";

fn machine(installed: &str) -> Machine {
    let machine = Machine::new();
    machine.program("dpkg-query", installed);
    machine.program("apt-cache", KNOWS);
    machine.program("apt-get", "exit 0");
    machine
}

#[test]
fn what_is_installed_costs_nothing() {
    let machine = machine(ALL);
    let run = machine.run("packages.sh", &["build"]);
    assert!(run.ok && run.said.is_empty(), "{}", run.said);
    assert_eq!(machine.calls("apt-get"), [] as [&str; 0]);
}

#[test]
fn with_sudo_the_missing_ones_are_installed() {
    let machine = machine(TWO_MISSING);
    machine.program("sudo", SUDO);
    let run = machine.run("packages.sh", &["build"]);
    assert!(run.ok, "{}", run.said);
    let wanted = "install -y --no-install-recommends pkg-config ca-certificates";
    assert_eq!(machine.calls("apt-get"), [wanted]);
}

#[test]
fn as_root_no_sudo_is_asked() {
    let machine = machine(TWO_MISSING);
    machine.program("id", "echo 0");
    let run = machine.run("packages.sh", &["build"]);
    assert!(run.ok, "{}", run.said);
    assert_eq!(machine.calls("sudo"), [] as [&str; 0]);
    assert_eq!(machine.calls("apt-get").len(), 1);
}

#[test]
fn with_neither_root_nor_sudo_the_missing_ones_are_named_with_the_command() {
    let machine = machine(TWO_MISSING);
    let run = machine.run("packages.sh", &["build"]);
    assert!(!run.ok);
    assert!(
        run.said
            .contains("installing pkg-config ca-certificates needs root"),
        "{}",
        run.said
    );
    assert!(run.said.contains("anna has no sudo"), "{}", run.said);
    let command = "apt-get install -y --no-install-recommends pkg-config ca-certificates";
    assert!(run.said.contains(command), "{}", run.said);
    assert_eq!(machine.calls("apt-get"), [] as [&str; 0]);
}

#[test]
fn old_package_lists_are_refreshed_and_the_install_is_tried_again() {
    let machine = machine(TWO_MISSING);
    machine.program("id", "echo 0");
    let marker = machine.path("out/updated").display().to_string();
    let body = format!("case $1 in update) touch {marker};; *) [ -e {marker} ];; esac");
    machine.program("apt-get", &body);
    let run = machine.run("packages.sh", &["build"]);
    assert!(run.ok, "{}", run.said);
    let verbs: Vec<_> = machine
        .calls("apt-get")
        .iter()
        .map(|c| c[..6].to_owned())
        .collect();
    assert_eq!(verbs, ["instal", "update", "instal"]);
}

#[test]
fn an_install_that_fails_is_quoted() {
    let machine = machine(TWO_MISSING);
    machine.program("id", "echo 0");
    machine.program(
        "apt-get",
        "[ \"$1\" = update ] || { echo E: no space >&2; exit 100; }",
    );
    let run = machine.run("packages.sh", &["build"]);
    assert!(!run.ok);
    assert!(run.said.contains("E: no space"), "{}", run.said);
    assert!(
        run.said
            .contains("installing pkg-config ca-certificates failed"),
        "{}",
        run.said
    );
}
