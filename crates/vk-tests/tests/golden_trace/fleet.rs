//! One of each with real VMs: GitLab stand-in, hub, node, daemon.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use vk_tests::port;

use crate::program::{Program, eventually, kill, processes_of, run, run_with};
use crate::recorded::PROJECT;

/// A fleet that runs.
pub(crate) struct Fleet {
    bin: PathBuf,
    directory: tempfile::TempDir,
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
    /// Sets one up and starts it, with the recorded project and a Debian image.
    pub(crate) fn start(root: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path().to_owned();
        let bin = root.join("bin");
        let program = |name: &str| Command::new(bin.join(name));
        let (hub, lab) = (port::free(), port::free());
        configure(&dir, root, hub, lab);
        project(&dir.join("examples"));
        let log = |name: &str| dir.join(name);
        let named = format!("lab/examples={}", text(&dir.join("examples")));
        let lab = Program::start(
            program("vk-lab")
                .args(["serve", "--addr", &format!("127.0.0.1:{lab}")])
                .args(["--project", &named, "--admin"])
                .arg(dir.join("lab.sock"))
                .arg("--token-file")
                .arg(dir.join("runner-token"))
                .arg("--state")
                .arg(dir.join("lab")),
            &log("lab.log"),
        );
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
            directory,
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

    /// Runs a pipeline to its end; each job's name and trace.
    pub(crate) fn run(&self, pipeline: &str) -> Vec<(String, String)> {
        let file = self.directory.path().join("pipeline.json");
        fs::write(&file, pipeline).unwrap();
        let answer = run(self.lab("trigger").arg(&file));
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let number = answer["pipeline"].to_string();
        let count = answer["jobs"].as_array().unwrap().len();
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
            let name = job["name"].as_str().unwrap().to_owned();
            let trace = run(self.lab("trace").arg(job["id"].to_string()));
            (name, trace)
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

/// The project that the recorded jobs had: the same commit, by the same dates and names.
fn project(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let (name, text) = PROJECT;
    fs::write(dir.join(name), text).unwrap();
    fs::set_permissions(dir.join(name), Permissions::from_mode(0o755)).unwrap();
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

fn configure(dir: &Path, root: &Path, hub: u16, lab: u16) {
    let write = |name: &str, text: String| fs::write(dir.join(name), text).unwrap();
    write(
        "hub.toml",
        format!("addr = \"127.0.0.1:{hub}\"\ndata_dir = \"hub\"\n[gitlab]\napprove = \"all\"\n"),
    );
    write(
        "vk.toml",
        format!(
            "state_dir = \"node\"\n[node]\nrunner = \"none\"\n[executor]\nimage = \"debian:12\"\n[executor.vm]\n\
             bundle = \"{}\"\ncpus = 1\nmem = \"512M\"\n",
            root.join("guest").display()
        ),
    );
    write(
        "gitlab.toml",
        format!(
            "state_dir = \"daemon\"\nsystem_id_file = \"daemon/system_id\"\n[gitlab]\n\
             url = \"http://127.0.0.1:{lab}\"\n[[runners]]\nname = \"one\"\n\
             token_file = \"runner-token\"\ncheck_interval = 1\n[runners.envelope]\n\
             mem = \"512M\"\ncpus = 1\ndisk = \"4G\"\n"
        ),
    );
}
