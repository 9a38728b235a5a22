//! One of each: hub, node, daemon, GitLab stand-in; each can be stopped, changed and started again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde_json::Value;
use vk_tests::port;

use crate::program::{Program, answers, eventually, kill, processes_of, run, run_with};

/// What the process stand-in for VMs wants to be told.
const ALLOW: (&str, &str) = ("VK_ALLOW_PROCESS_VMM", "for-tests");
/// Memory of a job's machine, in MiB.
const MEMORY: u32 = 256;

/// The parties that may be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    Daemon,
    Node,
    Hub,
}

/// What jobs run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guests {
    /// Processes of the agent, with a busybox image.
    Processes,
    /// Microvms, with a Debian image.
    Machines,
}

/// A fleet.
pub(crate) struct Fleet {
    bin: PathBuf,
    // In this order they end: the daemon before what it speaks with.
    running: std::collections::BTreeMap<Party, Program>,
    _lab: Program,
    directory: tempfile::TempDir,
    hub_url: String,
}

/// The folder of built programs, or `None`, said aloud, where it is not set.
pub(crate) fn test_root(test: &str) -> Option<PathBuf> {
    let root = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from);
    if root.is_none() {
        println!("{test}: needs the built programs: VK_TEST_ROOT is not set");
    }
    root
}

impl Fleet {
    /// Sets one up and starts it.
    pub(crate) fn start(root: &Path, guests: Guests) -> Self {
        let mut fleet = Self::set_up(root, guests);
        fleet.restart(Party::Hub);
        fleet.join_node();
        fleet.join_daemon();
        fleet.restart(Party::Node);
        fleet.node_is_ready();
        fleet.restart(Party::Daemon);
        fleet
    }

    /// Sets one up: a project, an image, a GitLab that runs, a hub that is initialised.
    pub(crate) fn set_up(root: &Path, guests: Guests) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let bin = root.join(match guests {
            Guests::Processes => "bin-process",
            Guests::Machines => "bin",
        });
        let (hub, lab) = (port::free(), port::free());
        configure(dir, root, guests, hub, lab);
        project(&dir.join("project"));
        let mut serve = Command::new(bin.join("vk-lab"));
        serve
            .arg("serve")
            .args(["--addr", &format!("127.0.0.1:{lab}")]);
        for (name, value) in [
            ("--project", "project"),
            ("--token-file", "runner-token"),
            ("--admin", "lab.sock"),
            ("--state", "lab"),
        ] {
            serve.arg(name).arg(dir.join(value));
        }
        let mut lab = Program::start(&mut serve, &dir.join("lab.log"));
        answers(&mut lab, &dir.join("lab.sock"));
        let fleet = Self {
            bin,
            running: std::collections::BTreeMap::new(),
            _lab: lab,
            directory,
            hub_url: format!("https://localhost:{hub}"),
        };
        let (file, name) = match guests {
            Guests::Processes => ("images/busybox.tar", "busybox"),
            Guests::Machines => ("images/debian.tar", "debian"),
        };
        let mut import = fleet.program("vk");
        import.args(["image", "import", "--state-dir"]);
        run(import
            .arg(fleet.path("node"))
            .arg(root.join(file))
            .arg(name));
        run(&mut fleet.hub_command(&["init"]));
        fleet
    }

    /// A new token of the running hub.
    pub(crate) fn token(&self, kind: &[&str]) -> String {
        eventually("the hub makes a token", || {
            let mut command = self.hub_command(&[&["token", "create"], kind].concat());
            let made = command.output().unwrap();
            let text = String::from_utf8(made.stdout).unwrap();
            made.status.success().then(|| text.trim().to_owned())
        })
    }

    fn join_node(&self) {
        let file = self.path("token");
        fs::write(&file, self.token(&[])).unwrap();
        let mut join = self.program("vk");
        join.args(["node", "join", &self.hub_url, "--token-file"]);
        run(join.arg(file).arg("--config").arg(self.path("vk.toml")));
    }

    fn join_daemon(&self) {
        let (ended, said) = self.join_daemon_with(&self.token(&["--kind", "gitlab"]));
        assert!(ended.success(), "{said}");
    }

    /// Enrols the daemon with a token; how that ended, and what was said.
    pub(crate) fn join_daemon_with(&self, token: &str) -> (ExitStatus, String) {
        let file = self.path("token");
        fs::write(&file, token).unwrap();
        let mut join = self.program("vk-gitlab");
        join.arg("-c").arg(self.path("gitlab.toml"));
        join.args(["join", &self.hub_url, "--token", "-"]);
        let ran = join.stdin(File::open(file).unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        (ran.status, said)
    }

    /// Waits until the hub counts on the node.
    pub(crate) fn node_is_ready(&mut self) {
        eventually("the node is ready", || {
            self.log(Party::Node);
            let nodes = self.hub_command(&["nodes"]).output().unwrap();
            let text = String::from_utf8_lossy(&nodes.stdout).into_owned();
            text.contains("ready").then_some(())
        });
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.env(ALLOW.0, ALLOW.1);
        command
    }

    pub(crate) fn hub_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program("vk-hub");
        let file = self.path("hub.toml");
        command.arg("--config").arg(file).args(arguments);
        command
    }

    /// Kills one, until it is started again.
    pub(crate) fn stop(&mut self, party: Party) {
        self.running.remove(&party).unwrap().kill();
    }

    /// Kills one without warning, if it runs, and starts it.
    pub(crate) fn restart(&mut self, party: Party) {
        if let Some(mut old) = self.running.remove(&party) {
            old.kill();
        }
        let mut command = match party {
            Party::Hub => self.hub_command(&["serve"]),
            Party::Node => {
                let mut command = self.program("vk");
                command.args(["node", "run", "--config"]);
                command.arg(self.path("vk.toml"));
                command
            }
            Party::Daemon => {
                let mut command = self.program("vk-gitlab");
                command.arg("-c").arg(self.path("gitlab.toml")).arg("run");
                command
            }
        };
        let program = Program::start(&mut command, &self.path(log_name(party)));
        self.running.insert(party, program);
    }

    /// What one has said in all its lives; it must still run.
    pub(crate) fn log(&mut self, party: Party) -> String {
        self.running.get_mut(&party).unwrap().log()
    }

    /// Waits until one says this.
    pub(crate) fn says(&mut self, party: Party, what: &str) {
        self.says_again(party, what, 1);
    }

    /// Waits until one has said this so many times.
    pub(crate) fn says_again(&mut self, party: Party, what: &str, times: usize) {
        eventually(&format!("the {party:?} says {what:?}"), || {
            (self.log(party).matches(what).count() >= times).then_some(())
        });
    }

    /// Changes a configuration file.
    pub(crate) fn edit(&self, name: &str, from: &str, to: &str) {
        let file = self.path(name);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{name} has no {from:?}: {text}");
        fs::write(&file, text.replace(from, to)).unwrap();
    }

    /// Processes of jobs: all that has a job's directory among its arguments.
    pub(crate) fn job_processes(&self) -> Vec<(u32, String)> {
        processes_of(&self.path("node/node/jobs"))
    }

    /// What the jobs that run have written so far, on the node.
    pub(crate) fn outputs(&self) -> Vec<String> {
        let jobs = fs::read_dir(self.path("node/node/jobs")).into_iter();
        let outputs = jobs
            .flatten()
            .flatten()
            .map(|job| job.path().join("output"));
        let texts = outputs.filter_map(|output| fs::read(output).ok());
        texts
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .collect()
    }

    /// No job has a process or a directory, and every outcome was delivered.
    pub(crate) fn assert_nothing_is_left(&self) {
        eventually("jobs' processes end", || {
            self.job_processes().is_empty().then_some(())
        });
        eventually("jobs' directories go", || {
            let left = fs::read_dir(self.path("node/node/jobs")).unwrap().count();
            (left == 0).then_some(())
        });
        eventually("the hub has settled all", || {
            let jobs = self.hub_jobs();
            jobs.iter().all(|job| job["settled"] == true).then_some(())
        });
    }

    /// The hub's jobs.
    pub(crate) fn hub_jobs(&self) -> Vec<Value> {
        let text = run(&mut self.hub_command(&["jobs", "--json"]));
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["hub.log", "node.log", "daemon.log", "lab.log"] {
                let text = fs::read_to_string(self.path(name)).unwrap_or_default();
                println!("{name}:\n{text}");
            }
        }
        self.running.clear();
        for (pid, _) in processes_of(self.directory.path()) {
            kill(pid);
        }
    }
}

const fn log_name(party: Party) -> &'static str {
    match party {
        Party::Daemon => "daemon.log",
        Party::Node => "node.log",
        Party::Hub => "hub.log",
    }
}

fn project(dir: &Path) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("file"), "what the project holds\n").unwrap();
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let mut git = Command::new("git");
        git.arg("-C").arg(dir).args(identity).args(arguments);
        run_with(&mut git, std::process::Stdio::null())
    };
    git(&["init", "--quiet", "--initial-branch", "main"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "one"]);
}

fn configure(dir: &Path, root: &Path, guests: Guests, hub: u16, lab: u16) {
    let write = |name: &str, text: String| fs::write(dir.join(name), text).unwrap();
    write(
        "hub.toml",
        format!("addr = \"127.0.0.1:{hub}\"\ndata_dir = \"hub\"\n[gitlab]\napprove = \"all\"\n"),
    );
    let (image, machine) = match guests {
        Guests::Processes => {
            let agent = root.join("bin-process/vk-agent");
            (
                "busybox",
                format!("process_agent = \"{}\"", agent.display()),
            )
        }
        Guests::Machines => {
            let bundle = root.join("guest");
            ("debian", format!("bundle = \"{}\"", bundle.display()))
        }
    };
    write(
        "vk.toml",
        format!(
            "state_dir = \"node\"\n[node]\nrunner = \"none\"\n[executor]\nimage = \"{image}\"\n[executor.vm]\n{machine}\n\
             cpus = 1\nmem = \"{MEMORY}M\"\n[executor.schedule]\nmem_budget = \"1G\"\n\
             disk_budget = \"8G\"\n"
        ),
    );
    write(
        "gitlab.toml",
        format!(
            "concurrent = 2\nstate_dir = \"daemon\"\nsystem_id_file = \"daemon/system_id\"\n\
             [gitlab]\nurl = \"http://127.0.0.1:{lab}\"\n[[runners]]\nname = \"one\"\n\
             token_file = \"runner-token\"\ncheck_interval = 1\n[runners.envelope]\n\
             mem = \"{MEMORY}M\"\ncpus = 1\ndisk = \"1G\"\n"
        ),
    );
}
