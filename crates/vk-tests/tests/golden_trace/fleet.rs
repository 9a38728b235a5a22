//! One of each: GitLab stand-in, hub, node, daemon.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use vk_tests::port;

use crate::program::{Program, answers, eventually, kill, processes_of, run, run_with};
use crate::recorded::{EXAMPLE_VARIABLES, FAULTS, MAKE_SOURCES, PROJECT};
use crate::registry::Registry;

/// What the process stand-in for VMs wants to be told.
const ALLOW: (&str, &str) = ("VK_ALLOW_PROCESS_VMM", "for-tests");
/// The project of the example, as GitLab names it.
const EXAMPLE: &str = "parity";
/// The projects of jobs with submodules, files of LFS and other hashes.
const SOURCES: [&str; 5] = ["leaf", "closed", "part", "tree", "long"];
/// Those of them that the jobs of `tree` may read.
const READ_BY_TREE: [&str; 2] = ["leaf", "part"];

/// How GitLab has a job's end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) status: String,
    pub(crate) exit_code: Option<i64>,
    pub(crate) failure_reason: String,
}

/// A job that ran.
pub(crate) struct Ran {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) ended: Ended,
}

/// A pipeline that was started: its number and its jobs.
pub(crate) struct Triggered(Value);

/// What fleets differ in.
struct Setup {
    /// The folder of programs in the test root.
    programs: &'static str,
    /// The project's name; its files lie in a folder of that name.
    project: &'static str,
    /// Jobs at once.
    concurrent: u32,
    /// Lines of the node's `[executor.vm]`.
    guest: String,
    /// Its `[executor.schedule]`.
    schedule: &'static str,
    /// Where caches are kept.
    registry: Option<Registry>,
}

/// A fleet that runs.
pub(crate) struct Fleet {
    bin: PathBuf,
    project: &'static str,
    directory: tempfile::TempDir,
    // Not where jobs have no caches.
    _registry: Option<Registry>,
    // In this order they end: the daemon before what it speaks with.
    _daemon: Program,
    _node: Program,
    _hub: Program,
    _lab: Program,
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Fleet {
    /// Sets one up and starts it, with real VMs and the recorded project.
    pub(crate) fn start(root: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let project = directory.path().join("examples");
        fs::create_dir(&project).unwrap();
        let (name, text) = PROJECT;
        fs::write(project.join(name), text).unwrap();
        fs::set_permissions(project.join(name), Permissions::from_mode(0o755)).unwrap();
        let guest = format!("bundle = {:?}\nmem = \"512M\"", root.join("guest"));
        let setup = Setup {
            programs: "bin",
            project: "examples",
            concurrent: 1,
            guest,
            schedule: "",
            registry: None,
        };
        Self::with(root, directory, setup)
    }

    /// The same with processes instead of VMs, the example's project and a registry for caches.
    pub(crate) fn of_example(root: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let project = directory.path().join(EXAMPLE);
        copy(&root.join("fixtures/examples").join(EXAMPLE), &project);
        let run = project.join("run.sh");
        fs::set_permissions(run, Permissions::from_mode(0o755)).unwrap();
        let agent = root.join("bin-process/vk-agent");
        let setup = Setup {
            programs: "bin-process",
            project: EXAMPLE,
            concurrent: 6,
            guest: format!("process_agent = {agent:?}\nmem = \"256M\""),
            schedule: "[executor.schedule]\ndisk_admission = false\nmem_budget = \"4G\"\n",
            registry: Some(Registry::start(root)),
        };
        Self::with(root, directory, setup)
    }

    fn with(root: &Path, directory: tempfile::TempDir, setup: Setup) -> Self {
        let dir = directory.path().to_owned();
        let bin = root.join(setup.programs);
        let program = |name: &str| {
            let mut command = Command::new(bin.join(name));
            command.env(ALLOW.0, ALLOW.1);
            command
        };
        let (hub, lab) = (port::free(), port::free());
        configure(&dir, &setup, hub, lab);
        commit(&dir.join(setup.project));
        let log = |name: &str| dir.join(name);
        let mut served = program("vk-lab");
        served.args(["serve", "--addr", &format!("127.0.0.1:{lab}")]);
        for project in projects(&dir, &setup) {
            let named = format!("lab/{project}={}", text(&dir.join(project)));
            served.args(["--project", &named]);
        }
        let mut lab = Program::start(
            served
                .arg("--variables")
                .arg(variables(&dir))
                .arg("--admin")
                .arg(dir.join("lab.sock"))
                .arg("--token-file")
                .arg(dir.join("runner-token"))
                .arg("--state")
                .arg(dir.join("lab")),
            &log("lab.log"),
        );
        // The runner's token is there by then.
        answers(&mut lab, &dir.join("lab.sock"));
        let hub_config = dir.join("hub.toml");
        let vk_hub = |arguments: &[&str]| {
            let mut command = program("vk-hub");
            command.arg("--config").arg(&hub_config).args(arguments);
            command
        };
        run(&mut vk_hub(&["init"]));
        let started = Program::start(&mut vk_hub(&["serve"]), &log("hub.log"));
        let token = |kind: &str| {
            let made = eventually("the hub makes a token", || {
                let made = vk_hub(&["token", "create", "--kind", kind]).output();
                made.ok().filter(|made| made.status.success())
            });
            fs::write(dir.join("token"), made.stdout).unwrap();
            File::open(dir.join("token")).unwrap()
        };
        let url = format!("https://localhost:{hub}");
        let node_config = dir.join("vk.toml");
        let mut join = program("vk");
        join.args(["node", "join", &url, "--token", "-", "--config"]);
        run_with(join.arg(&node_config), token("node"));
        let state = dir.join("node");
        for (file, name) in [("debian.tar", "debian:12"), ("busybox.tar", "busybox")] {
            run(program("vk")
                .args(["image", "import", "--state-dir", text(&state)])
                .arg(root.join("images").join(file))
                .arg(name));
        }
        let mut node = program("vk");
        node.args(["node", "run", "--config"]).arg(&node_config);
        let node = Program::start(&mut node, &log("node.log"));
        let daemon_config = dir.join("gitlab.toml");
        let vk_gitlab = || {
            let mut command = program("vk-gitlab");
            command.arg("-c").arg(&daemon_config);
            command
        };
        let mut join = vk_gitlab();
        join.args(["join", &url, "--token", "-"]);
        run_with(&mut join, token("gitlab"));
        let daemon = Program::start(vk_gitlab().arg("run"), &log("daemon.log"));
        Self {
            bin,
            project: setup.project,
            directory,
            _registry: setup.registry,
            _daemon: daemon,
            _node: node,
            _hub: started,
            _lab: lab,
        }
    }

    fn lab(&self, command: &str) -> Command {
        let mut lab = Command::new(self.bin.join("vk-lab"));
        lab.args([command, "--admin"])
            .arg(self.directory.path().join("lab.sock"));
        lab
    }

    /// The example's pipeline, as the program reads it.
    pub(crate) fn example(&self) -> String {
        let mut config = Command::new(self.bin.join("vk-lab"));
        config.args(["config", "--pipeline", "--variables"]);
        let dir = self.directory.path();
        run(config
            .arg(dir.join("variables.toml"))
            .arg(dir.join(EXAMPLE)))
    }

    fn admin(&self, command: &Value) -> Value {
        let answer = run(self.lab("admin").arg(command.to_string()));
        serde_json::from_str(&answer).unwrap()
    }

    /// From now on jobs of `tree` may read its submodules.
    pub(crate) fn let_read(&self) {
        for project in READ_BY_TREE {
            let (project, reader) = (format!("lab/{project}"), "lab/tree");
            self.admin(&json!({"cmd": "let_read", "project": project, "reader": reader}));
        }
    }

    /// What the stand-in does to transfers of the pipeline that is triggered when there are so many
    /// jobs.
    pub(crate) fn plan_faults(&self, before: usize) {
        let limits = json!({"cmd": "set", "artifact_limits": {"junit": 1000}});
        self.admin(&limits);
        for line in FAULTS.lines() {
            let mut fault: Value = serde_json::from_str(line).unwrap();
            // Jobs are numbered from 1, in the order in which they are made.
            let number = fault["job"].as_u64().unwrap() + u64::try_from(before).unwrap() + 1;
            fault["job"] = json!(number);
            run(self.lab("inject").arg(fault.to_string()));
        }
    }

    /// Starts a job that waits for that, and cancels it while it runs.
    fn cancel(&self, job: u64) {
        self.admin(&json!({"cmd": "play", "job": job}));
        // Somebody who watches: the runner hears sooner of what happens.
        let mut watch = self.lab("trace");
        watch.args(["--follow", &job.to_string()]);
        let _watching = Program::start(&mut watch, &self.directory.path().join("watched.log"));
        eventually("the job to cancel has begun", || {
            let trace = run(self.lab("trace").arg(job.to_string()));
            trace.contains("O begun\n").then_some(())
        });
        run(self.lab("cancel").arg(job.to_string()));
        eventually("the job is cancelled", || {
            let status: Value = serde_json::from_str(&run(&mut self.lab("status"))).unwrap();
            let pipelines = status["pipelines"].as_array().unwrap();
            let mut jobs = pipelines
                .iter()
                .flat_map(|one| one["jobs"].as_array().unwrap());
            let ours = jobs.find(|one| one["id"] == job).unwrap();
            (!ours["finished_ms"].is_null()).then_some(())
        });
    }

    /// Runs a pipeline to its end.
    pub(crate) fn run(&self, pipeline: &str) -> Vec<Ran> {
        self.end(self.trigger(pipeline))
    }

    /// Starts a pipeline. Without a project of its own it is that of the fleet's first.
    pub(crate) fn trigger(&self, pipeline: &str) -> Triggered {
        let file = self.directory.path().join("pipeline.json");
        let mut pipeline: Value = serde_json::from_str(pipeline).unwrap();
        if pipeline["project"].is_null() {
            pipeline["project"] = json!(format!("lab/{}", self.project));
        }
        fs::write(&file, pipeline.to_string()).unwrap();
        let answer = run(self.lab("trigger").arg(&file));
        Triggered(serde_json::from_str(&answer).unwrap())
    }

    /// Waits for its end, with jobs named `cancel` or `cancel:…` started and cancelled.
    pub(crate) fn end(&self, triggered: Triggered) -> Vec<Ran> {
        let Triggered(answer) = triggered;
        let number = answer["pipeline"].to_string();
        let count = answer["jobs"].as_array().unwrap().len();
        for job in answer["jobs"].as_array().unwrap() {
            if job["name"].as_str().unwrap().starts_with("cancel") {
                self.cancel(job["id"].as_u64().unwrap());
            }
        }
        // One after the other, each with as much time as one may take.
        let ended = |n: usize| {
            eventually("the next job ends", || {
                let status = run(self.lab("status").arg(&number));
                let status: Value = serde_json::from_str(&status).unwrap();
                let jobs = status["pipelines"][0]["jobs"].as_array().unwrap();
                let all = jobs.iter().filter(|job| !job["finished_ms"].is_null());
                (all.count() >= n).then(|| jobs.clone())
            })
        };
        let mut jobs = Vec::new();
        for n in 1..=count {
            jobs = ended(n);
        }
        let one = |job: &Value| {
            let text = |name: &str| job[name].as_str().unwrap_or("none").to_owned();
            Ran {
                name: text("name"),
                trace: run(self.lab("trace").arg(job["id"].to_string())),
                ended: Ended {
                    status: text("status"),
                    exit_code: job["exit_code"].as_i64(),
                    failure_reason: text("failure_reason"),
                },
            }
        };
        jobs.iter().map(one).collect()
    }

    /// The stand-in has nothing to complain of.
    pub(crate) fn assert_honest(&self) {
        assert_eq!(run(&mut self.lab("invariants")), "");
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["hub.log", "node.log", "daemon.log", "lab.log"] {
                let text = fs::read_to_string(self.directory.path().join(name));
                println!("{name}:\n{}", text.unwrap_or_default());
            }
        }
        // Jobs outlive a node's daemon; what is left of them where the test failed goes with it.
        for (pid, _) in processes_of(self.directory.path()) {
            kill(pid);
        }
    }
}

/// The projects' names; those beside the fleet's first are made where it is the example.
fn projects(dir: &Path, setup: &Setup) -> Vec<&'static str> {
    let mut all = vec![setup.project];
    if setup.project == EXAMPLE {
        let script = dir.join("make.sh");
        fs::write(&script, MAKE_SOURCES).unwrap();
        let mut make = Command::new("sh");
        run(make.arg(&script).arg("127.0.0.1").current_dir(dir));
        all.extend(SOURCES);
    }
    all
}

/// Copies files and folders.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The project's variables, which the recorded jobs had.
fn variables(dir: &Path) -> PathBuf {
    let file = dir.join("variables.toml");
    fs::write(&file, EXAMPLE_VARIABLES).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file
}

/// One commit of all files, by the same dates and names as the recorded one.
fn commit(dir: &Path) {
    let git = |arguments: &[&str]| {
        run(Command::new("git")
            .arg("-C")
            .arg(dir)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z")
            .args(["-c", "user.name=lab", "-c", "user.email=lab@example.com"])
            .args(arguments))
    };
    git(&["init", "--quiet", "--initial-branch", "main"]);
    git(&["add", "."]);
    let message = ["commit", "--quiet", "--message", "One file"];
    git(&[&message[..], &["--date", "2026-01-02T03:04:05Z"]].concat());
}

fn configure(dir: &Path, setup: &Setup, hub: u16, lab: u16) {
    let write = |name: &str, text: String| fs::write(dir.join(name), text).unwrap();
    let Setup {
        concurrent,
        guest,
        schedule,
        ..
    } = setup;
    write(
        "hub.toml",
        format!("addr = \"127.0.0.1:{hub}\"\ndata_dir = \"hub\"\n[gitlab]\napprove = \"all\"\n"),
    );
    let registry = setup.registry.as_ref().map(|registry| registry.host());
    let registry = registry.map(|host| format!("[registry]\nrepo = \"{host}/vk\"\n"));
    write(
        "vk.toml",
        format!(
            "state_dir = \"node\"\n[node]\nrunner = \"none\"\n[executor]\nimage = \"debian:12\"\n\
             [executor.vm]\n{guest}\ncpus = 1\n{schedule}{}",
            registry.unwrap_or_default()
        ),
    );
    write(
        "gitlab.toml",
        format!(
            "concurrent = {concurrent}\nstate_dir = \"daemon\"\n\
             system_id_file = \"daemon/system_id\"\n[gitlab]\n\
             url = \"http://127.0.0.1:{lab}\"\n[[runners]]\nname = \"one\"\n\
             token_file = \"runner-token\"\ncheck_interval = 1\n[runners.envelope]\n\
             mem = \"512M\"\ncpus = 1\ndisk = \"4G\"\n"
        ),
    );
}
