//! `vk check` finds what keeps a host from running jobs, and says what to do about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::fleet::test_root;

/// What a host of these tests has of programs, and nothing of whoever runs them.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A host with a configuration, in which something may be wrong.
pub(crate) struct Desk {
    vk: PathBuf,
    directory: tempfile::TempDir,
}

/// What a check found.
pub(crate) struct Found {
    pub(crate) code: Option<i32>,
    pub(crate) verdict: String,
    pub(crate) what: String,
    pub(crate) remedy: String,
}

impl Desk {
    pub(crate) fn new(root: &Path, configuration: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let text = format!("state_dir = \"state\"\n{configuration}");
        fs::write(directory.path().join("vk.toml"), text).unwrap();
        let vk = root.join("bin/vk");
        Self { vk, directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// One check of it.
    pub(crate) fn check(&self, name: &str) -> Found {
        self.run(Command::new(&self.vk), name)
    }

    /// One check in namespaces of its own, after a script of its root's.
    pub(crate) fn check_after(&self, script: &str, name: &str) -> Found {
        let mut inside = Command::new("unshare");
        inside.args(["--user", "--map-root-user", "--mount", "--net"]);
        inside.args(["/bin/bash", "-ec", &format!("{script}\n\"$0\" \"$@\"")]);
        inside.arg(&self.vk);
        self.run(inside, name)
    }

    fn run(&self, mut command: Command, name: &str) -> Found {
        command.args(["check", "--json", "--only", name, "--config"]);
        command.arg(self.path("vk.toml"));
        found(command.env("PATH", PATH).env("HOME", self.path("")))
    }
}

fn found(command: &mut Command) -> Found {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let findings: Vec<Value> =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(findings.len(), 1, "{findings:?}");
    let text = |key: &str| findings[0][key].as_str().unwrap_or_default().to_owned();
    Found {
        code: output.status.code(),
        verdict: text("verdict"),
        what: text("what"),
        remedy: text("remedy"),
    }
}

impl Found {
    /// It keeps jobs from running: what is said of it, and what to do.
    pub(crate) fn fails(&self, what: &str, remedy: &str) {
        self.is("fail", 1, what, remedy);
    }

    fn warns(&self, what: &str, remedy: &str) {
        self.is("warn", 0, what, remedy);
    }

    fn is(&self, verdict: &str, code: i32, what: &str, remedy: &str) {
        let all = format!("{}: {} / {}", self.verdict, self.what, self.remedy);
        assert_eq!(self.verdict, verdict, "{all}");
        assert_eq!(self.code, Some(code), "{all}");
        assert!(self.what.contains(what), "no {what:?} in {all}");
        assert!(self.remedy.contains(remedy), "no {remedy:?} in {all}");
    }
}

#[test]
fn a_program_that_is_missing_is_named_with_its_package() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let desk = Desk::new(&root, "[net]\nmode = \"switch\"\n");
    // A file that nobody can run, where a program was.
    let without = |name: &str| {
        format!(
            "for at in /usr/bin/{name} /usr/sbin/{name}; do\n\
             [ ! -e $at ] || mount --bind /dev/null $(readlink -f $at)\ndone"
        )
    };
    for (check, program, package) in [
        ("programs", "qemu-system-x86_64", "qemu-system-x86"),
        ("programs", "mke2fs", "e2fsprogs"),
        ("programs", "git", "git"),
        ("network", "pasta", "passt"),
        ("network", "nft", "nftables"),
        ("network", "ip", "iproute2"),
    ] {
        let found = desk.check_after(&without(program), check);
        found.fails(program, &format!("apt-get install {package}"));
    }
    desk.check_after(
        "[ ! -d /dev/net ] || mount -t tmpfs none /dev/net",
        "network",
    )
    .fails("/dev/net/tun", "");
}

#[test]
fn a_network_that_the_configuration_forbids_itself_is_told() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let unconfined = "[net]\nmode = \"switch\"\n[executor.vm]\nunconfined = true\n";
    let desk = Desk::new(&root, unconfined);
    let remedy = "leave executor.vm.unconfined out";
    desk.check("network").fails("confined VMs", remedy);
    desk.check("confinement").warns("switched off", remedy);
}

#[test]
fn a_host_that_cannot_confine_is_told_by_which_setting() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let none = "echo 0 >/proc/sys/user/max_user_namespaces";
    let found = Desk::new(&root, "").check_after(none, "confinement");
    found.fails(
        "user.max_user_namespaces",
        "kernel.unprivileged_userns_clone",
    );
}

#[test]
fn memory_that_is_not_there_is_told_and_by_which_key() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let of = |keys: &str| Desk::new(&root, keys).check("memory");
    let small = "[executor.vm]\nmem = \"2G\"\n[executor.schedule]\nmem_budget = \"1G\"\n";
    of(small).fails("a guest has up to 2048 MiB", "executor.schedule.mem_budget");
    let large = "[executor.vm]\nmem = \"1G\"\n[executor.schedule]\nmem_budget = \"900000G\"\n";
    of(large).warns(
        "921600000 of it for jobs",
        "lower executor.schedule.mem_budget",
    );
}

#[test]
fn a_runner_of_the_hosts_own_is_found_in_path_and_told() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let desk = Desk::new(&root, "");
    let program = desk.path("gitlab-runner");
    fs::copy("/bin/true", &program).unwrap();
    let mut check = Command::new(&desk.vk);
    check.args(["check", "--json", "--only", "runner", "--config"]);
    check.arg(desk.path("vk.toml"));
    let path = format!("{PATH}:{}", desk.path("").display());
    let runner = found(check.env("PATH", path));
    runner.fails("[node] runner = \"none\"", "");
    assert!(runner.what.contains("gitlab-runner"), "{}", runner.what);
}

#[test]
fn a_disk_with_little_room_and_one_of_somebody_elses_are_told() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let desk = Desk::new(&root, "");
    let state = desk.path("state");
    let on = |options: &str| {
        let at = state.display();
        format!("mkdir -p {at}\nmount -t tmpfs -o mode=700,{options} none {at}")
    };
    let found = desk.check_after(&on("size=64k"), "disk");
    found.warns("0 GiB are free", "make room");
    let found = desk.check_after(&on("size=16g,nr_inodes=100"), "disk");
    found.warns("inodes are free", "remove files there");
    let found = desk.check_after(
        &format!(
            "{}\nmount -o remount,bind,ro {}",
            on("size=16g"),
            state.display()
        ),
        "disk",
    );
    found.fails("cannot write to", "mount it writable");

    fs::write(desk.path("vk.toml"), "state_dir = \"/usr\"\n").unwrap();
    let found = desk.check("disk");
    match rustix::process::geteuid().is_root() {
        true => found.fails("others may look into it", "chmod 700 /usr"),
        false => found.fails("is user 0's", "as one user"),
    }
}

#[test]
fn a_host_of_no_hub_is_told_how_it_joins_one() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let desk = Desk::new(&root, "");
    desk.check("hub")
        .fails("has not joined a hub", "vk node join");
    for of_the_hub in ["clock", "daemon"] {
        assert_eq!(desk.check(of_the_hub).verdict, "skipped", "{of_the_hub}");
    }
}

#[test]
fn the_configuration_is_looked_for_where_the_node_looks() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let desk = Desk::new(&root, "");
    let own = desk.path(".config/vk");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("config.toml"), "state_dirr = \"/x\"\n").unwrap();
    let check = || {
        let mut check = Command::new(&desk.vk);
        check.args(["check", "--json", "--only", "config"]);
        check.env("HOME", desk.path("")).env_remove("VK_CONFIG");
        check
    };
    let found_there = found(&mut check());
    found_there.fails("state_dirr", "mend the file");
    assert!(found_there.what.contains(".config/vk/config.toml"));
    let named = found(check().env("VK_CONFIG", desk.path("nowhere.toml")));
    named.fails("nowhere.toml", "mend the file");
    assert_eq!(
        found(check().env("VK_CONFIG", desk.path("vk.toml"))).verdict,
        "ok"
    );
}
