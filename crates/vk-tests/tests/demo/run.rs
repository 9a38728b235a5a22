//! One run of the program, in a directory of its own.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// What the process stand-in for VMs wants to be told.
const ALLOW: (&str, &str) = ("VK_ALLOW_PROCESS_VMM", "for-tests");
/// How long anything may take here, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The folder of built programs, or `None`, said aloud, where it is not set.
pub(crate) fn test_root(test: &str) -> Option<PathBuf> {
    let root = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from);
    if root.is_none() {
        println!("{test}: needs the built programs: VK_TEST_ROOT is not set");
    }
    root
}

/// Where a test works: its project, and everything that runs make.
pub(crate) struct Place {
    root: PathBuf,
    bin: PathBuf,
    dir: tempfile::TempDir,
}

/// How a run ended.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A run that goes on.
pub(crate) struct Going {
    child: Child,
    lines: Receiver<String>,
    said: String,
}

impl Place {
    /// Jobs are processes of the agent.
    pub(crate) fn with_processes(root: &Path) -> Self {
        let place = Self::at(root, root.join("bin-process"));
        let agent = root.join("bin-process/vk-agent");
        let config = format!("[executor.vm]\nprocess_agent = {agent:?}\n");
        fs::write(place.path("node.toml"), config).unwrap();
        place
    }

    /// Jobs are VMs.
    pub(crate) fn with_machines(root: &Path) -> Self {
        Self::at(root, root.join("bin"))
    }

    fn at(root: &Path, bin: PathBuf) -> Self {
        let dir = tempfile::Builder::new().prefix("vkd").tempdir().unwrap();
        for name in ["project", "tmp"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let root = root.to_owned();
        Self { root, bin, dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program of the bundle that is tested.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// An example as it was staged.
    pub(crate) fn example(&self, name: &str) -> PathBuf {
        self.root.join("fixtures/examples").join(name)
    }

    /// Writes a file of the project.
    pub(crate) fn file(&self, name: &str, text: &str) {
        fs::write(self.path("project").join(name), text).unwrap();
    }

    /// Writes a file of variables.
    pub(crate) fn variables(&self, text: &str) -> PathBuf {
        let path = self.path("variables.toml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// `vk-lab` with these arguments.
    pub(crate) fn lab(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program("vk-lab"));
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env(ALLOW.0, ALLOW.1)
            .env("TMPDIR", self.path("tmp"))
            .env("HOME", self.path("home"))
            .env_remove("XDG_CACHE_HOME")
            .stdin(Stdio::null());
        command
    }

    /// `vk-lab run` of a directory.
    pub(crate) fn command(&self, dir: &Path, arguments: &[&str]) -> Command {
        let image = |name: &str, file: &str| {
            let file = self.root.join("images").join(file);
            format!("{name}={}", file.display())
        };
        let mut command = self.lab(&["run"]);
        command.arg(dir).args(["--state", "state", "--out", "out"]);
        command.args(["--import", &image("busybox", "busybox.tar")]);
        command.args(["--cpus", "1", "--disk", "1G"]);
        if self.path("node.toml").exists() {
            command.args(["--node-config", "node.toml", "--memory", "256M"]);
        } else {
            command.args(["--import", &image("debian:12", "debian.tar")]);
            command.args(["--memory", "512M", "--bundle"]);
            command.arg(self.root.join("guest"));
        }
        command.args(arguments);
        command
    }

    /// Runs the project to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        ran(&mut self.command(&self.path("project"), arguments))
    }

    /// Begins to run the project.
    pub(crate) fn begin(&self, arguments: &[&str]) -> Going {
        let mut command = self.command(&self.path("project"), arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines() {
                // Nobody listens once the test is over.
                let _ = send.send(line.unwrap());
            }
        });
        Going {
            child,
            lines,
            said: String::new(),
        }
    }

    /// What the last run left for programs.
    pub(crate) fn result(&self) -> Value {
        let text = fs::read(self.path("out/result.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// A job of the last run.
    pub(crate) fn job(&self, name: &str) -> Value {
        let result = self.result();
        let jobs = result["jobs"].as_array().unwrap();
        let found = jobs.iter().find(|job| job["name"] == name);
        found
            .unwrap_or_else(|| panic!("no job {name}: {result}"))
            .clone()
    }

    /// A job's log, as GitLab stored it.
    pub(crate) fn trace(&self, folder: &str) -> String {
        let path = self.path("out/jobs").join(folder).join("trace.log");
        fs::read_to_string(path).unwrap()
    }

    /// The private directory of the run that goes on.
    pub(crate) fn private(&self) -> PathBuf {
        let mut entries = fs::read_dir(self.path("tmp")).unwrap();
        entries.next().unwrap().unwrap().path()
    }

    /// No process of the runs is there, and nothing of theirs in the directory for private ones.
    pub(crate) fn assert_nothing_is_left(&self) {
        let tmp = self.path("tmp");
        eventually("all is gone", || {
            let files = fs::read_dir(&tmp).unwrap().count();
            let processes = processes_of(&tmp);
            (files == 0 && processes.is_empty()).then_some(())
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["hub", "node", "daemon"] {
                let log = self.path(&format!("out/logs/{name}.log"));
                println!("{name}: {}", fs::read_to_string(log).unwrap_or_default());
            }
        }
    }
}

/// Runs a command to its end.
pub(crate) fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let ran = Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    };
    println!("{:?}\n{}{}", ran.code, ran.out, ran.err);
    ran
}

impl Going {
    /// The next line; nothing at the end.
    fn line(&mut self) -> Option<String> {
        let line = match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => panic!("it said nothing for {PATIENCE:?}"),
        };
        println!("{line}");
        self.said.push_str(&line);
        self.said.push('\n');
        Some(line)
    }

    /// Reads until a line holds this text.
    pub(crate) fn until(&mut self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while let Some(line) = self.line() {
            if line.contains(text) {
                return;
            }
            assert!(Instant::now() < end, "no {text:?} within {PATIENCE:?}");
        }
        panic!("it ended without {text:?}");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Its end: the code, and all it printed.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        while self.line().is_some() {}
        let code = self.child.wait().unwrap().code();
        (code, std::mem::take(&mut self.said))
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        // A test that failed leaves nothing running; one that ended has nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks again until there is an answer; panics with `what` after a time.
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes whose command line or working directory names something in a directory: their numbers
/// and command lines.
pub(crate) fn processes_of(directory: &Path) -> Vec<(i32, String)> {
    let name = directory.to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap();
    let lines = entries.filter_map(|entry| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let at = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        (line.contains(name) || at.starts_with(directory)).then_some((pid, line))
    });
    lines.collect()
}
