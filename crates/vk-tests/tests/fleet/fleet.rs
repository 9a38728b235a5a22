//! One of each: hub, node, daemon, GitLab stand-in.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use vk_tests::port;

use crate::lab::Lab;
use crate::program::{Program, answers, eventually, kill, processes_of, run, run_with};
use crate::settings::{Settings, project};
use crate::wire::Wire;

/// What the process stand-in for VMs wants to be told.
const ALLOW: (&str, &str) = ("VK_ALLOW_PROCESS_VMM", "for-tests");

/// The parties that may be killed and started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Party {
    Hub,
    Node,
    Daemon,
}

/// A fleet that runs.
pub(crate) struct Fleet {
    bin: PathBuf,
    environment: Vec<(&'static str, &'static str)>,
    limited: bool,
    /// When the daemon was started last: milliseconds of the world's clock.
    daemon_since_ms: u64,
    // In this order they end: the daemon before what it speaks with.
    daemon: Option<Program>,
    node: Option<Program>,
    hub: Option<Program>,
    _lab: Program,
    pub(crate) lab: Lab,
    wire: Option<Wire>,
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

impl Fleet {
    /// Sets one up and starts it, with a project and a busybox image.
    pub(crate) fn start(root: &Path) -> Self {
        Self::with(root, &Settings::default())
    }

    /// The same, set up otherwise.
    pub(crate) fn with(root: &Path, settings: &Settings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path().to_owned();
        let (hub, lab) = (port::free(), port::free());
        settings.write(&dir, root, hub, lab);
        project(&dir.join("project"));
        project(&dir.join("other"));
        let mut fleet = Self {
            bin: root.join(settings.programs),
            environment: settings.environment.clone(),
            limited: settings.limited,
            daemon_since_ms: 0,
            daemon: None,
            node: None,
            hub: None,
            _lab: start_lab(&root.join(settings.programs), &dir, lab),
            lab: Lab {
                socket: dir.join("lab.sock"),
            },
            wire: settings.wired.then(|| Wire::to(hub)),
            directory,
        };
        let image = root.join("images/busybox.tar");
        let mut import = fleet.program("vk");
        import.args(["image", "import", "--state-dir"]);
        run(import.arg(dir.join("node")).arg(image).arg("busybox"));
        run(&mut fleet.hub_command(&["init"]));
        fleet.restart(Party::Hub);
        let url = format!("https://localhost:{hub}");
        if settings.held {
            let held = json!({ "cmd": "set", "long_poll_ns": 50_000_000_000_u64 });
            fleet.lab.ask(&held);
        }
        fleet.join_node(&fleet.url_of_node(), &[]);
        fleet.join_daemon(&url, &[]);
        fleet.restart(Party::Node);
        fleet.wait_for_node();
        fleet.restart(Party::Daemon);
        if settings.approve == "ask" && settings.approved {
            eventually("the daemon's server is approved", || {
                let mut approve = fleet.hub_command(&["gitlab", "approve", "s1"]);
                approve.output().unwrap().status.success().then_some(())
            });
        }
        fleet
    }

    fn join_daemon(&self, url: &str, more: &[&str]) {
        self.token(&["--kind", "gitlab"]);
        let token = File::open(self.path("token")).unwrap();
        let mut join = self.program("vk-gitlab");
        join.arg("-c").arg(self.path("gitlab.toml"));
        run_with(join.args(["join", url, "--token", "-"]).args(more), token);
    }

    /// Enrols the daemon anew; it must be started again.
    pub(crate) fn join_daemon_again(&self) {
        self.join_daemon(&self.hub_url(), &["--replace"]);
    }

    /// Writes a fresh enrolment token to the file `token`.
    pub(crate) fn token(&self, kind: &[&str]) {
        let token = eventually("the hub makes a token", || {
            let mut command = self.hub_command(&[&["token", "create"], kind].concat());
            let made = command.output().unwrap();
            made.status
                .success()
                .then(|| String::from_utf8(made.stdout).unwrap())
        });
        fs::write(self.path("token"), &token).unwrap();
    }

    fn join_node(&self, url: &str, more: &[&str]) {
        run(&mut self.joining_node(url, more));
    }

    fn joining_node(&self, url: &str, more: &[&str]) -> Command {
        self.token(&[]);
        let mut join = self.program("vk");
        join.args(["node", "join", url, "--token-file"]);
        join.arg(self.path("token")).args(more);
        join.arg("--config").arg(self.path("vk.toml"));
        join
    }

    /// Tries to enrol the node anew; what was said where that was refused.
    pub(crate) fn node_is_refused_to_join_again(&self) -> Option<String> {
        let mut join = self.joining_node(&self.url_of_node(), &["--replace"]);
        let ran = join.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        (!ran.status.success()).then_some(said)
    }

    /// Enrols the node anew; it must be started again.
    pub(crate) fn join_node_again(&self) {
        self.join_node(&self.url_of_node(), &["--replace"]);
    }

    pub(crate) fn wait_for_node(&self) {
        eventually("the node is there", || self.node_is_there().then_some(()));
    }

    pub(crate) fn node_is_there(&self) -> bool {
        let listed = self.hub_command(&["nodes"]).output().unwrap();
        String::from_utf8_lossy(&listed.stdout).contains("ready")
    }

    pub(crate) fn hub_url(&self) -> String {
        let hub = fs::read_to_string(self.path("hub.toml")).unwrap();
        let first = hub.lines().next().unwrap().trim_end_matches('"');
        let (_, port) = first.rsplit_once(':').unwrap();
        format!("https://localhost:{port}")
    }

    /// Where the node finds its hub.
    fn url_of_node(&self) -> String {
        let wire = self.wire.as_ref();
        wire.map_or_else(|| self.hub_url(), Wire::url)
    }

    /// Cuts the connection between node and hub.
    pub(crate) fn cut_the_session(&self) {
        self.wire.as_ref().unwrap().cut();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.env(ALLOW.0, ALLOW.1);
        command.envs(self.environment.iter().copied());
        command
    }

    pub(crate) fn hub_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program("vk-hub");
        command
            .arg("--config")
            .arg(self.path("hub.toml"))
            .args(arguments);
        command
    }

    /// The file that may say where a program is to die: `hub`, `node`, `daemon` or `job`.
    pub(crate) fn kill_file(&self, whose: &str) -> PathBuf {
        self.path(&format!("kill-{whose}"))
    }

    /// Kills one without warning, if it runs, and starts it.
    pub(crate) fn restart(&mut self, party: Party) {
        let (mut command, name) = match party {
            Party::Hub => (self.hub_command(&["serve"]), "hub"),
            Party::Node => (self.program("vk"), "node"),
            Party::Daemon => (self.program("vk-gitlab"), "daemon"),
        };
        if self.limited && party == Party::Hub {
            let mut ignoring = Command::new("env");
            ignoring.arg("--ignore-signal=XFSZ");
            ignoring.arg(command.get_program()).args(command.get_args());
            command = ignoring;
            command.envs(self.environment.iter().copied());
        }
        let at = |file: PathBuf| format!("@{}", file.display());
        command.env("VK_KILL_AT", at(self.kill_file(name)));
        match party {
            Party::Hub => {}
            Party::Node => {
                command.env("VK_JOB_KILL_AT", at(self.kill_file("job")));
                command.args(["node", "run", "--config"]);
                command.arg(self.path("vk.toml"));
            }
            Party::Daemon => drop(command.arg("-c").arg(self.path("gitlab.toml")).arg("run")),
        }
        self.stop(party);
        if party == Party::Daemon {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            self.daemon_since_ms = u64::try_from(since.as_millis()).unwrap();
        }
        let log = self.path(&format!("{name}.log"));
        *self.seat(party) = Some(Program::start(&mut command, &log));
    }

    /// When the daemon that was started last did not run yet: what GitLab handed out before, an
    /// earlier one got. Milliseconds of the world's clock.
    pub(crate) const fn daemon_since_ms(&self) -> u64 {
        self.daemon_since_ms
    }

    /// Whether the daemon's log has a job.
    pub(crate) fn daemon_names(&self, job: u64) -> bool {
        let log = fs::read_to_string(self.path("daemon.log")).unwrap_or_default();
        let name = format!("gitlab_job={job} ");
        log.lines().any(|line| line.contains(&name))
    }

    fn seat(&mut self, party: Party) -> &mut Option<Program> {
        match party {
            Party::Hub => &mut self.hub,
            Party::Node => &mut self.node,
            Party::Daemon => &mut self.daemon,
        }
    }

    /// Has every program that is started from now on find this in its environment.
    pub(crate) fn set_environment(&mut self, name: &'static str, value: &'static str) {
        self.environment.retain(|(known, _)| *known != name);
        self.environment.push((name, value));
    }

    /// Kills one, if it runs, until it is started again.
    pub(crate) fn stop(&mut self, party: Party) {
        if let Some(mut old) = self.seat(party).take() {
            old.kill();
        }
    }

    /// Whether it ended by itself, or was killed; not, where it was stopped.
    pub(crate) fn has_ended(&mut self, party: Party) -> bool {
        self.seat(party).as_mut().is_some_and(Program::has_ended)
    }

    /// The `nodes` or `relays` of the hub, by their numbers; none while it is down.
    pub(crate) fn enrolled(&self, what: &str) -> Option<Vec<String>> {
        let ran = self.hub_command(&[what, "--json"]).output().unwrap();
        let listed: Value = serde_json::from_slice(&ran.stdout).ok()?;
        let id = |one: &Value| {
            let kind = what.trim_end_matches('s');
            one["id"].as_str().or(one[kind].as_str()).map(str::to_owned)
        };
        listed.as_array()?.iter().map(id).collect()
    }

    /// Whether a daemon has told the hub of its GitLab.
    pub(crate) fn is_server_known(&self) -> bool {
        let listed = self.hub_command(&["gitlab", "list"]).output().unwrap();
        String::from_utf8_lossy(&listed.stdout).contains("http://")
    }

    /// Whether the daemon has a session with the hub.
    pub(crate) fn daemon_is_there(&self) -> bool {
        let ran = self.hub_command(&["relays", "--json"]).output().unwrap();
        let listed: Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        listed[0]["connected"] == true
    }

    /// A party that runs.
    pub(crate) fn running(&mut self, party: Party) -> &mut Program {
        self.seat(party).as_mut().unwrap()
    }

    /// Joins another node with this token; how that ended, and what was said.
    pub(crate) fn join_again(&self, token: &str) -> (ExitStatus, String) {
        let file = self.path("other-token");
        fs::write(&file, token).unwrap();
        let mut join = self.program("vk");
        join.args(["node", "join", &self.hub_url(), "--token-file"]);
        join.arg(file).arg("--config").arg(self.path("vk.toml"));
        join.arg("--state-dir").arg(self.path("other-node"));
        let ran = join.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        (ran.status, said)
    }

    /// Makes a pipeline of one job with this script; the pipeline's and the job's number.
    pub(crate) fn trigger(&self, script: &[&str]) -> (u64, u64) {
        let (pipeline, jobs) = self
            .lab
            .trigger(&json!([{ "name": "job", "script": script }]));
        (pipeline, jobs[0])
    }

    /// A job's log as GitLab has it.
    pub(crate) fn trace(&self, job: u64) -> String {
        String::from_utf8(self.lab.trace(job)).unwrap()
    }

    /// Waits for a pipeline's end; its only job as the lab tells it.
    pub(crate) fn ended(&mut self, pipeline: u64) -> Value {
        let ended = eventually("the pipeline ends", || {
            for party in [Party::Hub, Party::Node, Party::Daemon] {
                self.running(party).log();
            }
            let job = self.lab.jobs(pipeline).remove(0);
            (!job["finished_ms"].is_null()).then_some(job)
        });
        println!("{ended}");
        ended
    }

    /// The same, whoever runs.
    pub(crate) fn ended_of(&self, pipeline: u64) -> Value {
        eventually("the pipeline ends", || {
            let job = self.lab.jobs(pipeline).remove(0);
            (!job["finished_ms"].is_null()).then_some(job)
        })
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

    /// What every program said, for whoever looks for what went wrong.
    pub(crate) fn print_logs(&self) {
        for name in ["hub.log", "node.log", "daemon.log", "lab.log"] {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            println!("{name}:\n{text}");
        }
    }

    /// The daemon's state file, without its spaces.
    pub(crate) fn daemon_state(&self) -> String {
        let text = fs::read_to_string(self.path("daemon/one.json")).unwrap_or_default();
        text.split_whitespace().collect()
    }

    /// What the hub knows of its jobs; none while it is down.
    pub(crate) fn hub_jobs(&self) -> Option<Vec<Value>> {
        let ran = self.hub_command(&["jobs", "--json"]).output().unwrap();
        let listed: Value = serde_json::from_slice(&ran.stdout).ok()?;
        listed.as_array().cloned()
    }
}

fn start_lab(bin: &Path, dir: &Path, port: u16) -> Program {
    let mut lab = Command::new(bin.join("vk-lab"));
    lab.args(["serve", "--addr", &format!("127.0.0.1:{port}")]);
    let places = [
        ("--project", "project"),
        ("--project", "other"),
        ("--token-file", "runner-token"),
        ("--admin", "lab.sock"),
        ("--state", "lab"),
    ];
    for (option, name) in places {
        lab.arg(option).arg(dir.join(name));
    }
    let mut lab = Program::start(&mut lab, &dir.join("lab.log"));
    answers(&mut lab, &dir.join("lab.sock"));
    lab
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_logs();
        }
        (self.daemon, self.node) = (None, None);
        for (pid, _) in processes_of(self.directory.path()) {
            kill(pid);
        }
    }
}
