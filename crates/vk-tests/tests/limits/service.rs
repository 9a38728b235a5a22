//! The node's unit as an operator has it installed, and what is seen of a node that has jobs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::json;

use crate::fleet::{Fleet, Guests, Party, test_root};
use crate::lab::Lab;
use crate::program::{eventually, run};

/// A host with a systemd that writes down what it is told.
struct Host {
    root: PathBuf,
    directory: tempfile::TempDir,
}

impl Host {
    fn new(root: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("units")).unwrap();
        let host = Self {
            root: root.to_owned(),
            directory,
        };
        let systemctl = host.path("systemctl");
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {}\n",
            host.path("told").display()
        );
        fs::write(&systemctl, script).unwrap();
        fs::set_permissions(&systemctl, Permissions::from_mode(0o755)).unwrap();
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn unit(&self) -> PathBuf {
        self.path("units/vk-node.service")
    }

    fn service(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.root.join("bin/vk"));
        command.args(["node", "service"]).args(arguments);
        let path = format!("{}:/usr/bin:/bin", self.directory.path().display());
        command
            .arg("--unit-dir")
            .arg(self.path("units"))
            .env("PATH", path);
        command.output().unwrap()
    }

    /// What systemd was told since the last time.
    fn told(&self) -> String {
        let told = fs::read_to_string(self.path("told")).unwrap_or_default();
        let _ = fs::remove_file(self.path("told"));
        told
    }
}

#[test]
fn the_unit_is_installed_enabled_and_removed_again() {
    let Some(root) = test_root("vk node service") else {
        return;
    };
    let host = Host::new(&root);
    let refused = host.service(&["install", "--user", "nobody-has-this-name"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("useradd"));
    assert!(!host.unit().exists() && host.told().is_empty());

    let installed = host.service(&["install", "--user", "nobody"]);
    assert!(installed.status.success(), "{installed:?}");
    let text = fs::read_to_string(host.unit()).unwrap();
    assert!(text.contains("\nUser=nobody\n"), "{text}");
    assert_eq!(host.told(), "daemon-reload\nenable --now vk-node.service\n");

    let state = host.path("state");
    let state = state.to_str().unwrap();
    let removed = host.service(&["uninstall", "--state-dir", state]);
    assert!(removed.status.success(), "{removed:?}");
    assert!(!host.unit().exists());
    assert_eq!(
        host.told(),
        "disable --now vk-node.service\ndaemon-reload\n"
    );
    let again = host.service(&["uninstall", "--state-dir", state]);
    assert_eq!(again.status.code(), Some(1));
}

#[test]
fn an_install_over_an_older_unit_replaces_all_of_it_and_the_node_that_runs() {
    let Some(root) = test_root("vk node service") else {
        return;
    };
    let host = Host::new(&root);
    let older = "[Service]\nExecStart=/opt/older/vk node run\nUser=somebody\nKillMode=mixed\n";
    fs::write(host.unit(), older).unwrap();
    let installed = host.service(&["install", "--user", "nobody", "--stop-timeout", "60"]);
    assert!(installed.status.success(), "{installed:?}");
    let said = String::from_utf8_lossy(&installed.stdout).into_owned();
    assert!(said.contains("written anew and restarted"), "{said}");
    let told = host.told();
    let expected = "daemon-reload\nenable vk-node.service\nrestart vk-node.service\n";
    assert_eq!(told, expected);
    let printed = host.service(&[
        "install",
        "--user",
        "nobody",
        "--stop-timeout",
        "60",
        "--print",
    ]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    // What is supposed stands before it.
    let installed = fs::read_to_string(host.unit()).unwrap();
    assert!(
        !installed.is_empty() && printed.ends_with(&installed),
        "{printed}"
    );
    assert!(!printed.contains("/opt/older"), "{printed}");
    assert_eq!(fs::read_dir(host.path("units")).unwrap().count(), 1);

    // Whoever wants to start it by themselves is left to.
    let installed = host.service(&["install", "--user", "nobody", "--no-start"]);
    assert!(installed.status.success(), "{installed:?}");
    assert_eq!(host.told(), "daemon-reload\nenable vk-node.service\n");
}

#[test]
fn systemd_has_nothing_to_say_about_the_nodes_unit_which_leaves_jobs_alone() {
    let Some(root) = test_root("vk node service") else {
        return;
    };
    let host = Host::new(&root);
    let printed = host.service(&["install", "--user", "daemon", "--print"]);
    assert!(printed.status.success(), "{printed:?}");
    let unit = String::from_utf8(printed.stdout).unwrap();
    for line in [
        "Type=exec",
        "KillMode=process",
        "Restart=on-failure",
        "RestartPreventExitStatus=75 78",
        "OOMPolicy=continue",
        "RequiresMountsFor=/var/lib/vk",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "DevicePolicy=closed",
        "DeviceAllow=/dev/kvm rw",
        "DeviceAllow=/dev/net/tun rw",
        "TimeoutStopSec=30",
    ] {
        assert_eq!(
            unit.lines().filter(|one| *one == line).count(),
            1,
            "{line}: {unit}"
        );
    }
    let verify = |text: &str| {
        fs::write(host.unit(), text).unwrap();
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]).arg(host.unit());
        let said = verify.output().ok()?;
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        let about = said.lines().filter(|line| line.contains("vk-node.service"));
        Some(about.map(str::to_owned).collect::<Vec<_>>())
    };
    let Some(said) = verify(&unit) else {
        println!("there is no systemd-analyze here: the unit is not verified");
        return;
    };
    assert_eq!(said, Vec::<String>::new());
    let wrong = verify(&unit.replace("KillMode=process", "KillMode=sometimes"));
    assert_eq!(wrong.unwrap().len(), 1, "it would say what is wrong");
}

#[test]
fn a_node_with_a_job_says_so_while_it_drains_and_is_not_uninstalled() {
    let Some(root) = test_root("a node with a job") else {
        return;
    };
    let mut fleet = Fleet::start(&root, Guests::Processes);
    let lab = Lab::of(&fleet, &root);
    let go_on = fleet.path("go-on");
    let waits = format!(
        "until [ -e /proc/1/root{} ]; do sleep 0.1; done",
        go_on.display()
    );
    let job = lab.trigger(&json!({ "name": "stays", "script": ["echo it is here", waits] }));
    // GitLab hears of a quiet job once a minute.
    eventually("the job runs", || {
        let outputs = fleet.outputs();
        let runs = |text: &String| text.lines().any(|line| line.ends_with(" it is here"));
        outputs.iter().any(runs).then_some(())
    });
    let node = |arguments: &[&str]| {
        let mut command = fleet.program("vk");
        command.arg("node").args(arguments).arg("--config");
        run(command.arg(fleet.path("vk.toml")))
    };
    // The daemon may have reserved room for another one.
    let told = node(&["drain"]);
    assert!(told.starts_with("draining: 1 jobs and "), "{told}");
    let status = node(&["status"]);
    for line in ["state    draining", "jobs     1 here, "] {
        assert!(
            status.lines().any(|one| one.starts_with(line)),
            "{line}: {status}"
        );
    }
    let jobs = node(&["jobs"]);
    let row = jobs.lines().nth(1).unwrap();
    for word in [job.to_string().as_str(), "running"] {
        assert!(
            row.split_whitespace().any(|one| one == word),
            "{word}: {jobs}"
        );
    }

    let host = Host::new(&root);
    fs::write(host.unit(), "[Service]\nUser=nobody\n").unwrap();
    let state = fleet.path("node");
    let uninstall = |more: &[&str]| {
        let state = ["--state-dir", state.to_str().unwrap()];
        host.service(&[&["uninstall"], &state[..], more].concat())
    };
    let refused = |output: Output| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("1 jobs are here") && said.contains("drain --wait"),
            "{said}"
        );
        assert!(host.unit().exists() && host.told().is_empty());
    };
    refused(uninstall(&[]));
    fleet.stop(Party::Node);
    refused(uninstall(&[]));
    let removed = uninstall(&["--force"]);
    assert!(removed.status.success(), "{removed:?}");
    assert!(!host.unit().exists());

    fleet.restart(Party::Node);
    fs::write(go_on, "").unwrap();
    lab.ended_as(job, "success");
    fleet.assert_nothing_is_left();
}
