//! One of each: hub, node, daemon, GitLab stand-in.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde_json::Value;

use crate::program::{Program, eventually, kill, processes_of, run, run_with};

/// What the process stand-in for VMs wants to be told.
const ALLOW: (&str, &str) = ("VK_ALLOW_PROCESS_VMM", "for-tests");

/// The parties that may be killed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Party {
    Hub,
    Node,
    Daemon,
}

/// A fleet that runs.
pub(crate) struct Fleet {
    bin: PathBuf,
    // In this order they end: the daemon before what it speaks with.
    daemon: Option<Program>,
    node: Option<Program>,
    hub: Option<Program>,
    _lab: Program,
    directory: tempfile::TempDir,
}

/// The folder of built programs, or `None`, said aloud, where it is not set.
pub(crate) fn test_root(test: &str) -> Option<PathBuf> {
    let root = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from);
    if root.is_none() {
        println!("{test}: needs the built programs: VK_TEST_ROOT is not set");
    }
    root
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Fleet {
    /// Sets one up and starts it, with a project and a busybox image.
    pub(crate) fn start(root: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path().to_owned();
        let dir = dir.as_path();
        let (hub, lab) = (free_port(), free_port());
        configure(dir, &root.join("bin-process"), hub, lab);
        project(&dir.join("project"));
        let bin = root.join("bin-process");
        let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let url = format!("127.0.0.1:{lab}");
        let lab = Program::start(
            Command::new(bin.join("vk-lab")).args([
                "serve",
                "--addr",
                &url,
                "--project",
                &at("project"),
                "--token-file",
                &at("runner-token"),
                "--admin",
                &at("lab.sock"),
                "--state",
                &at("lab"),
            ]),
            &dir.join("lab.log"),
        );
        let mut fleet = Self {
            bin,
            daemon: None,
            node: None,
            hub: None,
            _lab: lab,
            directory,
        };
        let image = root.join("images/busybox.tar");
        let image = image.to_str().unwrap();
        run(fleet.program("vk").args([
            "image",
            "import",
            "--state-dir",
            &at("node"),
            image,
            "busybox",
        ]));
        run(&mut fleet.hub_command(&["init"]));
        fleet.restart(Party::Hub);
        let url = format!("https://localhost:{hub}");
        let token = |kind: &[&str]| {
            let token = eventually("the hub makes a token", || {
                let mut command = fleet.hub_command(&[&["token", "create"], kind].concat());
                let made = command.output().unwrap();
                made.status
                    .success()
                    .then(|| String::from_utf8(made.stdout).unwrap())
            });
            fs::write(dir.join("token"), &token).unwrap();
        };
        token(&[]);
        run(fleet.program("vk").args([
            "node",
            "join",
            &url,
            "--token-file",
            &at("token"),
            "--config",
            &at("vk.toml"),
        ]));
        token(&["--kind", "gitlab"]);
        let read = File::open(dir.join("token")).unwrap();
        let mut join = fleet.program("vk-gitlab");
        join.args(["-c", &at("gitlab.toml"), "join", &url, "--token", "-"]);
        run_with(&mut join, read);
        fleet.restart(Party::Node);
        eventually("the node is there", || {
            run(&mut fleet.hub_command(&["nodes"]))
                .contains("ready")
                .then_some(())
        });
        fleet.restart(Party::Daemon);
        fleet
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.env(ALLOW.0, ALLOW.1);
        command
    }

    fn hub_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program("vk-hub");
        command
            .arg("--config")
            .arg(self.path("hub.toml"))
            .args(arguments);
        command
    }

    /// Kills one without warning, if it runs, and starts it.
    pub(crate) fn restart(&mut self, party: Party) {
        let (mut command, log) = match party {
            Party::Hub => (self.hub_command(&["serve"]), "hub.log"),
            Party::Node => (self.program("vk"), "node.log"),
            Party::Daemon => (self.program("vk-gitlab"), "daemon.log"),
        };
        match party {
            Party::Hub => {}
            Party::Node => drop(
                command
                    .args(["node", "run", "--config"])
                    .arg(self.path("vk.toml")),
            ),
            Party::Daemon => drop(command.arg("-c").arg(self.path("gitlab.toml")).arg("run")),
        }
        let log = self.path(log);
        let seat = match party {
            Party::Hub => &mut self.hub,
            Party::Node => &mut self.node,
            Party::Daemon => &mut self.daemon,
        };
        if let Some(mut old) = seat.take() {
            old.kill();
        }
        *seat = Some(Program::start(&mut command, &log));
    }

    /// Kills the hub, until it is started again.
    pub(crate) fn stop_hub(&mut self) {
        self.hub.take().unwrap().kill();
    }

    /// Joins another node with this token; how that ended, and what was said.
    pub(crate) fn join_again(&self, token: &str) -> (ExitStatus, String) {
        let file = self.path("other-token");
        fs::write(&file, token).unwrap();
        let hub = fs::read_to_string(self.path("hub.toml")).unwrap();
        let (_, port) = hub
            .lines()
            .next()
            .unwrap()
            .trim_end_matches('"')
            .rsplit_once(':')
            .unwrap();
        let mut join = self.program("vk");
        join.args([
            "node",
            "join",
            &format!("https://localhost:{port}"),
            "--token-file",
        ]);
        join.arg(file).arg("--config").arg(self.path("vk.toml"));
        join.arg("--state-dir").arg(self.path("other-node"));
        let ran = join.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        (ran.status, said)
    }

    fn lab(&self, command: &str, arguments: &[&str]) -> String {
        let mut lab = self.program("vk-lab");
        lab.args([command, "--admin"])
            .arg(self.path("lab.sock"))
            .args(arguments);
        run(&mut lab)
    }

    /// Makes a pipeline of one job with this script; the pipeline's and the job's number.
    pub(crate) fn trigger(&self, script: &[&str]) -> (u64, u64) {
        let pipeline = serde_json::json!({ "jobs": [{ "name": "job", "script": script }] });
        let file = self.path("pipeline.json");
        fs::write(&file, pipeline.to_string()).unwrap();
        let answer: Value =
            serde_json::from_str(&self.lab("trigger", &[file.to_str().unwrap()])).unwrap();
        (
            answer["pipeline"].as_u64().unwrap(),
            answer["jobs"][0]["id"].as_u64().unwrap(),
        )
    }

    /// A job's log as GitLab has it.
    pub(crate) fn trace(&self, job: u64) -> String {
        self.lab("trace", &[&job.to_string()])
    }

    /// Waits for a pipeline's end; its only job as the lab tells it.
    pub(crate) fn ended(&mut self, pipeline: u64) -> Value {
        let ended = eventually("the pipeline ends", || {
            let text = self.lab("status", &[&pipeline.to_string()]);
            let status: Value = serde_json::from_str(&text).unwrap();
            for party in [&mut self.hub, &mut self.node, &mut self.daemon] {
                party.as_mut().unwrap().log();
            }
            let job = status["pipelines"][0]["jobs"][0].clone();
            (!job["finished_ms"].is_null()).then_some(job)
        });
        println!("{ended}");
        ended
    }

    /// Processes of jobs: their numbers, and the jobs' directories.
    pub(crate) fn job_processes(&self) -> Vec<(u32, PathBuf)> {
        let all = processes_of(self.directory.path());
        let of_job = |(pid, line): (u32, String)| {
            let (_, directory) = line.trim_end().split_once(" node job ")?;
            Some((pid, PathBuf::from(directory)))
        };
        all.into_iter().filter_map(of_job).collect()
    }

    /// What the jobs that run have written so far, on the node.
    pub(crate) fn outputs(&self) -> Vec<String> {
        let read = |(_, dir): &(u32, PathBuf)| fs::read(dir.join("output")).ok();
        let outputs = self
            .job_processes()
            .iter()
            .filter_map(read)
            .collect::<Vec<_>>();
        outputs
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect()
    }

    /// No invariant is broken, no job has a process, and every outcome was delivered.
    pub(crate) fn assert_nothing_is_left(&self) {
        assert_eq!(self.lab("invariants", &[]), "");
        // Job processes, agents and all they started have the job's directory in their arguments.
        let jobs = self.path("node/node/jobs");
        eventually("jobs' processes end", || {
            processes_of(&jobs).is_empty().then_some(())
        });
        eventually("jobs' directories go", || {
            let left = fs::read_dir(&jobs).unwrap().count();
            (left == 0).then_some(())
        });
        eventually("the hub has settled all", || {
            let text = run(&mut self.hub_command(&["jobs", "--json"]));
            let jobs: Value = serde_json::from_str(&text).unwrap();
            let jobs = jobs.as_array().unwrap();
            assert!(!jobs.is_empty(), "the hub knows no job");
            jobs.iter().all(|job| job["settled"] == true).then_some(())
        });
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
        (self.daemon, self.node) = (None, None);
        for (pid, _) in processes_of(self.directory.path()) {
            kill(pid);
        }
    }
}

fn project(dir: &Path) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("file"), "what the project holds\n").unwrap();
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        run(Command::new("git")
            .arg("-C")
            .arg(dir)
            .args(identity)
            .args(arguments))
    };
    git(&["init", "--quiet", "--initial-branch", "main"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "one"]);
}

fn configure(dir: &Path, bin: &Path, hub: u16, lab: u16) {
    let write = |name: &str, text: String| fs::write(dir.join(name), text).unwrap();
    write(
        "hub.toml",
        format!("addr = \"127.0.0.1:{hub}\"\ndata_dir = \"hub\"\n[gitlab]\napprove = \"all\"\n"),
    );
    write(
        "vk.toml",
        format!(
            "state_dir = \"node\"\n[executor]\nimage = \"busybox\"\n[executor.vm]\n\
             process_agent = \"{}\"\ncpus = 1\nmem = \"256M\"\n[executor.schedule]\n\
             mem_budget = \"1G\"\ndisk_budget = \"8G\"\n",
            bin.join("vk-agent").display()
        ),
    );
    write(
        "gitlab.toml",
        format!(
            "concurrent = 2\nstate_dir = \"daemon\"\nsystem_id_file = \"daemon/system_id\"\n\
             [gitlab]\nurl = \"http://127.0.0.1:{lab}\"\n[[runners]]\nname = \"one\"\n\
             token_file = \"runner-token\"\ncheck_interval = 1\n[runners.envelope]\n\
             mem = \"256M\"\ncpus = 1\ndisk = \"1G\"\n"
        ),
    );
}
