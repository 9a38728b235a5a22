//! `make install`: what an operator gets, where, and that it is of use as it lies there.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MAKEFILE: &str = include_str!("../../../Makefile");
const SCRIPT: &str = include_str!("../../../scripts/install");
const PAGES: [(&str, &str); 3] = [
    ("vk.1", include_str!("../../../packaging/vk.1")),
    ("vk-hub.1", include_str!("../../../packaging/vk-hub.1")),
    (
        "vk-gitlab.1",
        include_str!("../../../packaging/vk-gitlab.1"),
    ),
];
const UNITS: [(&str, &str); 3] = [
    (
        "vk-node.service",
        include_str!("../../../packaging/vk-node.service"),
    ),
    (
        "vk-hub.service",
        include_str!("../../../packaging/vk-hub.service"),
    ),
    (
        "vk-gitlab.service",
        include_str!("../../../packaging/vk-gitlab.service"),
    ),
];
const EXAMPLES: [(&str, &str); 3] = [
    (
        "hub.toml",
        include_str!("../../../packaging/examples/hub.toml"),
    ),
    (
        "vk-gitlab.toml",
        include_str!("../../../packaging/examples/vk-gitlab.toml"),
    ),
    (
        "vk.toml",
        include_str!("../../../packaging/examples/vk.toml"),
    ),
];
const AGENT: &str = "x86_64-unknown-linux-gnu/agent/vk-agent";

/// A checkout as far as `make install` looks at it, with these programs as if built.
struct Checkout {
    dir: tempfile::TempDir,
}

impl Checkout {
    fn with(programs: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, mode: u32| {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        };
        write("Makefile", MAKEFILE, 0o644);
        write("scripts/install", SCRIPT, 0o755);
        for (name, text) in PAGES.iter().chain(&UNITS) {
            write(&format!("packaging/{name}"), text, 0o600);
        }
        for (name, text) in EXAMPLES {
            write(&format!("packaging/examples/{name}"), text, 0o600);
        }
        let built = |name: &str, place: &str| {
            let to = dir.path().join("target").join(place);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            symlink(programs.join(name), to).unwrap();
        };
        for name in ["vk", "vk-hub", "vk-gitlab"] {
            built(name, &format!("release/{name}"));
        }
        built("vk-agent", AGENT);
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn make(&self, what: &str, prefix: &str) -> Output {
        let mut make = Command::new("make");
        make.arg(what).current_dir(self.dir.path());
        make.arg(format!("PREFIX={prefix}"));
        make.arg(format!("DESTDIR={}", self.path("root").display()));
        make.env_remove("CARGO_TARGET_DIR");
        make.output().unwrap()
    }

    /// Every file below the root, from the prefix on, with its mode.
    fn installed(&self) -> Vec<(String, u32)> {
        let root = self.path("root");
        let mut found = Vec::new();
        let mut left = vec![root.clone()];
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path);
                    continue;
                }
                let mode = path.metadata().unwrap().permissions().mode() & 0o7777;
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
                found.push((name.to_owned(), mode));
            }
        }
        found.sort();
        found
    }
}

/// The programs as staged, or `None`, said aloud.
fn programs() -> Option<PathBuf> {
    let root = std::env::var_os("VK_TEST_ROOT");
    if root.is_none() {
        println!("needs the built programs: VK_TEST_ROOT is not set");
    }
    Some(PathBuf::from(root?).join("bin"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_is_installed_is_where_operators_and_systemd_look_for_it_and_goes_again() {
    let Some(programs) = programs() else {
        return;
    };
    let checkout = Checkout::with(&programs);
    let done = checkout.make("install", "/opt/ci");
    assert!(done.status.success(), "{}", said(&done));
    let expected = [
        ("bin/vk", 0o755),
        ("bin/vk-gitlab", 0o755),
        ("bin/vk-hub", 0o755),
        ("lib/systemd/system/vk-gitlab.service", 0o644),
        ("lib/systemd/system/vk-hub.service", 0o644),
        ("lib/systemd/system/vk-node.service", 0o644),
        ("lib/vk/vk-agent", 0o755),
        ("share/doc/vk/examples/hub.toml", 0o644),
        ("share/doc/vk/examples/vk-gitlab.toml", 0o644),
        ("share/doc/vk/examples/vk.toml", 0o644),
        ("share/man/man1/vk-gitlab.1", 0o644),
        ("share/man/man1/vk-hub.1", 0o644),
        ("share/man/man1/vk.1", 0o644),
    ];
    let expected = expected.map(|(name, mode)| (format!("opt/ci/{name}"), mode));
    assert_eq!(checkout.installed(), expected);
    // Each unit runs the program that was installed with it.
    for (name, text) in UNITS {
        let file = checkout.path("root/opt/ci/lib/systemd/system").join(name);
        let unit = fs::read_to_string(file).unwrap();
        let line = |text: &str| {
            let mut lines = text.lines();
            let line = lines.find_map(|line| line.strip_prefix("ExecStart="));
            line.unwrap().to_owned()
        };
        let begins = line(&unit);
        assert_eq!(begins, line(text).replace("/usr/bin/", "/opt/ci/bin/"));
        let (program, _) = begins.split_once(' ').unwrap();
        assert!(checkout.path("root").join(&program[1..]).exists());
    }
    // A second time over the first, as an upgrade does.
    assert!(checkout.make("install", "/opt/ci").status.success());
    assert_eq!(checkout.installed(), expected);

    let own = checkout.path("root/opt/ci/share/doc/vk/own");
    fs::write(&own, "an operator's").unwrap();
    let gone = checkout.make("uninstall", "/opt/ci");
    assert!(gone.status.success(), "{}", said(&gone));
    let left = [("opt/ci/share/doc/vk/own".to_owned(), 0o644)];
    assert_eq!(checkout.installed(), left);
}

#[test]
fn what_could_not_run_is_not_installed() {
    let Some(programs) = programs() else {
        return;
    };
    let checkout = Checkout::with(&programs);
    let refused = |prefix: &str, why: &str| {
        let refused = checkout.make("install", prefix);
        assert!(!refused.status.success());
        assert!(said(&refused).contains(why), "{}", said(&refused));
        assert!(checkout.installed().is_empty());
    };
    refused("usr", "no absolute path");
    refused("/opt/a b", "no absolute path");
    refused("/home/ci/vk", "hidden from services");
    fs::remove_file(checkout.path("target").join(AGENT)).unwrap();
    refused("/usr", "run `make release` first");
    let for_tests = programs.with_file_name("bin-process");
    let checkout = Checkout::with(&for_tests);
    let refused = checkout.make("install", "/usr");
    assert!(said(&refused).contains("a build for tests"));
    assert!(checkout.installed().is_empty());
}

/// The examples are what the programs take.
#[test]
fn the_example_configurations_are_taken() {
    let Some(programs) = programs() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let text = |of: &str| EXAMPLES.iter().find(|(name, _)| *name == of).unwrap().1;
    let write = |name: &str, text: &str| {
        let file = dir.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        file
    };
    write("ci.token", "glrt-aaaaaaaaaaaaaaaaaaaa\n");
    let daemon = write("vk-gitlab.toml", text("vk-gitlab.toml"));
    let mut command = Command::new(programs.join("vk-gitlab"));
    let checked = command.arg("-c").arg(daemon).args(["config", "check"]);
    let checked = checked.output().unwrap();
    assert!(checked.status.success(), "{}", said(&checked));

    let node = write("vk.toml", text("vk.toml"));
    let mut command = Command::new(programs.join("vk"));
    let checked = command.args(["check", "--only", "config", "--config"]);
    let checked = checked.arg(node).output().unwrap();
    assert!(checked.status.success(), "{}", said(&checked));

    // In a directory that is there, as packages and units make it.
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
    let hub = text("hub.toml").replace("\"/var/lib/vk-hub\"", "\"data\"");
    let hub = write("hub.toml", &hub);
    let mut command = Command::new(programs.join("vk-hub"));
    let made = command.arg("--config").arg(hub).arg("init");
    let made = made.output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    assert!(data.join("tls").exists());
}

/// What `man` says of the pages, where there is one that does.
#[test]
fn the_manual_pages_are_without_fault() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in PAGES {
        let page = dir.path().join(name);
        fs::write(&page, text).unwrap();
        let check = |program: &str, arguments: &[&str]| {
            let checked = Command::new(program).args(arguments).arg(&page).output();
            let Ok(checked) = checked else {
                println!("{program} is not here: {name} is not checked by it");
                return;
            };
            let faults = String::from_utf8_lossy(&checked.stdout).into_owned() + &said(&checked);
            assert!(checked.status.success() && faults.is_empty(), "{faults}");
        };
        check("groff", &["-man", "-Tutf8", "-ww", "-z"]);
        check("mandoc", &["-T", "lint", "-W", "warning"]);
        // Markup of the manual that was taken over as it stands.
        for line in text.lines().filter(|line| !line.starts_with(".\\\"")) {
            let stray = line.contains("\\fR`") || line.contains("```") || line.contains("](");
            assert!(!stray, "{name}: {line}");
        }
    }
}

/// What systemd itself says of the hub's unit, where there is one.
#[test]
fn systemd_finds_nothing_wrong_with_the_hubs_unit() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vk-hub.service");
    let unit = UNITS[1].1.replace("=/usr/bin/vk-hub ", "=/bin/true ");
    fs::write(&file, unit).unwrap();
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(arguments).arg(&file).output().ok()
    };
    let Some(verified) = analyze(&["verify", "--man=no"]) else {
        println!("systemd-analyze is not here: the unit is not verified");
        return;
    };
    // Units of the host that it depends on are the host's affair.
    let of_ours = |line: &str| line.contains("vk-hub.service");
    assert!(!said(&verified).lines().any(of_ours), "{}", said(&verified));
    if let Some(security) = analyze(&["security", "--offline=true", "--threshold=20"]) {
        let text = String::from_utf8_lossy(&security.stdout).into_owned();
        assert!(security.status.success(), "{text}{}", said(&security));
    }
}
