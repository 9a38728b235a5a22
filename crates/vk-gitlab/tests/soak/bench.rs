//! The stand-ins, and the daemon between them.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::hub::Hub;
use crate::lab::Lab;
use crate::program::{Program, eventually, run};
use crate::{Size, door, feed, hub};

/// Of a hundred calls so many are hit by each of the faults.
const CHANCE: f64 = 0.0125;

/// Everything that runs.
pub(crate) struct Bench {
    // In this order they end: the daemon before what it speaks with.
    pub(crate) daemon: Program,
    pub(crate) lab: Lab,
    _lab: Program,
    pub(crate) hub: Hub,
    _runtime: Runtime,
    pub(crate) dir: tempfile::TempDir,
}

impl Bench {
    /// Sets all of it up with a hub that ends jobs at once, and waits until every runner has asked for
    /// a job.
    pub(crate) fn start(root: &Path, size: Size) -> Bench {
        let fits = u32::try_from(2 * size.runners).unwrap();
        Bench::of(root, size, hub::at_once(fits, feed::end))
    }

    /// The same with this hub.
    pub(crate) fn of(root: &Path, size: Size, hub: Hub) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let bin = root.join("bin");
        project(&dir.path().join("project"));
        let (lab_program, lab, url) = start_lab(&bin, dir.path());
        let tokens = add_runners(&lab, dir.path(), size.runners);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let port = runtime.block_on(door::open(hub.clone()));
        configure(dir.path(), &url, &tokens);
        let daemon = start_daemon(&bin, dir.path(), port);
        let bench = Bench {
            daemon,
            lab,
            _lab: lab_program,
            hub,
            _runtime: runtime,
            dir,
        };
        eventually("every runner asks for jobs", || {
            bench.all_ask().then_some(())
        });
        bench
    }

    fn all_ask(&self) -> bool {
        let status = self.lab.ask(&json!({ "cmd": "status" }));
        let runners = status["runners"].as_array().unwrap();
        // The first is the stand-in's own, whose token nobody has.
        let mut ours = runners.iter().skip(1);
        ours.all(|runner| runner["requests"].as_u64().unwrap() > 0)
    }

    /// Has every twentieth call fail: before it acts as 503, as 429 and with a broken connection, and
    /// with a broken connection after it acted.
    pub(crate) fn inject(&self) {
        let faults = [
            json!({ "action": { "status": 503 } }),
            json!({ "action": { "status": 429 }, "retry_after": 1 }),
            json!({ "action": "drop" }),
            json!({ "action": "drop", "when": "after" }),
        ];
        for (seed, mut fault) in (1..).zip(faults) {
            fault["cmd"] = "inject".into();
            fault["on"] = "any".into();
            fault["chance"] = CHANCE.into();
            fault["seed"] = seed.into();
            self.lab.ask(&fault);
        }
    }

    /// The calls so far since there are faults, and how many each fault has hit.
    pub(crate) fn faults(&self) -> (u64, Vec<u64>) {
        let answer = self.lab.ask(&json!({ "cmd": "faults" }));
        let faults = answer["faults"].as_array().unwrap();
        let number = |fault: &Value, name: &str| fault[name].as_u64().unwrap();
        let calls = faults.first().map_or(0, |fault| number(fault, "seen"));
        (
            calls,
            faults.iter().map(|fault| number(fault, "hit")).collect(),
        )
    }

    /// What the daemon's state files hold, as `<file>: <content>`, of those that hold a job.
    pub(crate) fn kept(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join("daemon")).unwrap();
        let files = entries.map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|ends| ends == "json"));
        files
            .filter_map(|path| {
                let text = fs::read_to_string(&path).unwrap();
                let holds = text.contains("gitlab_job");
                holds.then(|| format!("{}: {text}", path.display()))
            })
            .collect()
    }
}

fn project(dir: &Path) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("file"), "what the project holds\n").unwrap();
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let mut git = Command::new("git");
        run(git.arg("-C").arg(dir).args(identity).args(arguments));
    };
    git(&["init", "--quiet", "--initial-branch", "main"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "one"]);
}

/// The stand-in, where it is asked, and its address.
fn start_lab(bin: &Path, dir: &Path) -> (Program, Lab, String) {
    let mut serve = Command::new(bin.join("vk-lab"));
    serve.args(["serve", "--addr", "127.0.0.1:0", "--project"]);
    serve.arg(format!("lab/project={}", dir.join("project").display()));
    serve.arg("--token-file").arg(dir.join("own-token"));
    serve.arg("--admin").arg(dir.join("lab.sock"));
    serve.arg("--state").arg(dir.join("lab"));
    let program = Program::start(&mut serve, &dir.join("lab.log"));
    let url = eventually("the stand-in serves", || {
        let log = program.log();
        let line: Value = serde_json::from_str(log.lines().next()?).ok()?;
        Some(line["url"].as_str()?.to_owned())
    });
    let lab = Lab(dir.join("lab.sock"));
    lab.ask(&json!({ "cmd": "runner", "run_untagged": false }));
    lab.ask(&json!({
        "cmd": "set", "sum_ended_traces": true, "sweep_every_secs": 0,
        "rate_limits": { "request": 0, "trace": 0, "job": 0 },
    }));
    (program, lab, url)
}

/// Runners, the first with the tag `r0` and so on; the files of their tokens.
fn add_runners(lab: &Lab, dir: &Path, count: usize) -> Vec<String> {
    let tokens = dir.join("tokens");
    fs::create_dir(&tokens).unwrap();
    let added = (0..count).map(|number| {
        let tags = [format!("r{number}")];
        let add = json!({ "cmd": "add_runners", "count": 1, "tags": tags, "token_dir": tokens });
        let added = lab.ask(&add);
        let file = added["runners"][0]["token_file"].as_str();
        file.unwrap().to_owned()
    });
    added.collect()
}

fn configure(dir: &Path, url: &str, tokens: &[String]) {
    let mut text = format!(
        "concurrent = {}\ncheck_interval = 1\nstate_dir = 'daemon'\n\
         system_id_file = 'daemon/system_id'\n[gitlab]\nurl = '{url}'\n",
        2 * tokens.len()
    );
    for (number, token) in tokens.iter().enumerate() {
        // Three of a runner's requests may fail in a row.
        text += &format!(
            "[[runners]]\nname = 'r{number}'\ntoken_file = '{token}'\nunhealthy_interval = 2\n\
             envelope = {{ mem = '512M', cpus = 1, disk = '1G' }}\n"
        );
    }
    fs::write(dir.join("config.toml"), text).unwrap();
}

fn start_daemon(bin: &Path, dir: &Path, hub: u16) -> Program {
    let daemon = || {
        let mut daemon = Command::new(bin.join("vk-gitlab"));
        daemon.args(["--log-level", "warn", "--config"]);
        daemon.arg(dir.join("config.toml"));
        daemon
    };
    let url = format!("http://127.0.0.1:{hub}");
    let mut join = daemon()
        .args(["join", &url, "--token", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // No CA is behind the hash: on plain loopback none is asked for.
    let token = format!("secret.{}\n", "A".repeat(43));
    let mut input = join.stdin.take().unwrap();
    input.write_all(token.as_bytes()).unwrap();
    drop(input);
    assert!(join.wait().unwrap().success(), "the daemon joins the hub");
    File::create(dir.join("daemon.log")).unwrap();
    Program::start(daemon().arg("run"), &dir.join("daemon.log"))
}
