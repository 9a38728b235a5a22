//! What the tests of whole jobs share: a node's state in a directory, and jobs to run on it.

#![allow(dead_code, reason = "each test uses a part")]

#[path = "../../src/git/test_server.rs"]
mod test_server;

pub(crate) use test_server::GitServer;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use vk_driver::{
    ARTIFACT_CAP, ArtifactsAt, Caches, Control, Images, JobContext, JobDirs, JobPlan, JobState,
    NodeName, SourceBounds,
};
use vk_hub_proto::job::{JobResult, JobSpec};
use vk_image::{Platform, PullPolicy, Rules, Store};
use vk_kill::KillPoints;
use vk_vm::Vmm;
use vk_vm::confine::{Confinement, Walls};

/// The masked variable of every job.
pub(crate) const SECRET: &str = "a-masked-value-4711";

/// A node's directories.
pub(crate) struct Node {
    pub(crate) root: PathBuf,
    pub(crate) dir: TempDir,
    store: Store,
    jobs: std::cell::Cell<u32>,
}

/// A job that was run.
pub(crate) struct Ran {
    pub(crate) result: JobResult,
    pub(crate) output: String,
    pub(crate) dir: PathBuf,
}

impl Node {
    /// A node with busybox, or `None`, said aloud, where the built programs are not there.
    pub(crate) fn new(test: &str) -> Option<Node> {
        let Some(root) = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from) else {
            println!("{test} needs the built programs: VK_TEST_ROOT is not set");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("images")).unwrap();
        let tar = root.join("images/busybox.tar");
        store
            .import(&tar, "busybox:latest", &Platform::default())
            .unwrap();
        let jobs = std::cell::Cell::new(0);
        Some(Node {
            root,
            dir,
            store,
            jobs,
        })
    }

    /// The process VMM: no machine, for what does not need one.
    #[cfg(feature = "process-vmm")]
    pub(crate) fn process(&self) -> Arc<dyn Vmm> {
        use vk_vm::process::{ProcessSettings, ProcessVmm};
        let helper = self.root.join("bin-process/vk");
        let settings = ProcessSettings {
            agent: self.root.join("bin/vk-agent"),
            confinement: Confinement {
                helper,
                walls: Walls::Required,
            },
            cache: self.dir.path().join("extracted"),
            allowed: true,
        };
        Arc::new(ProcessVmm::prepare(settings).unwrap())
    }

    /// QEMU.
    pub(crate) async fn qemu(&self) -> Arc<dyn Vmm> {
        use vk_vm::qemu::{Qemu, QemuSettings};
        let helper = self.root.join("bin/vk");
        let confinement = Confinement {
            helper,
            walls: Walls::Required,
        };
        let bundle = self.root.join("guest");
        let mut settings = QemuSettings::new(bundle, confinement, vk_vm::Accelerator::Tcg);
        settings.vsock_daemon = Some(self.root.join("bin/vhost-device-vsock"));
        Arc::new(Qemu::prepare(settings).await.unwrap())
    }

    /// A directory for the next job.
    pub(crate) fn job_dir(&self) -> PathBuf {
        self.jobs.set(self.jobs.get() + 1);
        let dir = self.dir.path().join(format!("job-{}", self.jobs.get()));
        std::fs::create_dir(&dir).unwrap();
        dir
    }

    /// What a job of this spec runs with.
    pub(crate) fn context(&self, vmm: Arc<dyn Vmm>, spec: Value, job: PathBuf) -> JobContext {
        let JobSpec::GitlabCi(spec) = serde_json::from_value(spec).unwrap();
        JobContext {
            spec: *spec,
            plan: JobPlan {
                cpus: 1,
                mem_mib: 256,
                disk_bytes: 1 << 30,
                slot: 2,
                project_slot: 1,
                warnings: Vec::new(),
            },
            dirs: JobDirs {
                job,
                mirrors: self.dir.path().join("mirrors"),
                bounds: SourceBounds::default(),
            },
            node: NodeName {
                host: "n1".to_owned(),
                version: "0.1".to_owned(),
                revision: "test".to_owned(),
            },
            vmm,
            confinement: Confinement {
                helper: self.root.join("bin/vk"),
                walls: Walls::Required,
            },
            images: Images {
                store: self.store.clone(),
                rules: Rules {
                    pull_policy: vec![PullPolicy::Never],
                    ..Rules::default()
                },
                insecure_registries: Vec::new(),
            },
            artifacts: ArtifactsAt::Directory(self.dir.path().join("artifacts")),
            boot_limit: Duration::from_secs(90),
            artifact_cap: ARTIFACT_CAP,
            caches: Caches::default(),
            kill: KillPoints::from_env().unwrap(),
        }
    }

    /// Runs a job to its end.
    pub(crate) async fn run(&self, vmm: Arc<dyn Vmm>, spec: Value) -> Ran {
        let dir = self.job_dir();
        Started::new(self.context(vmm, spec, dir)).end().await
    }
}

/// A job that runs.
pub(crate) struct Started {
    pub(crate) control: mpsc::Sender<Control>,
    pub(crate) state: watch::Receiver<JobState>,
    dir: PathBuf,
    task: tokio::task::JoinHandle<Result<JobResult, vk_driver::DriverError>>,
}

impl Started {
    /// Starts and admits it.
    pub(crate) fn new(context: JobContext) -> Started {
        let started = Started::waiting(context);
        started.control.try_send(Control::Grant).unwrap();
        started
    }

    /// Starts it.
    pub(crate) fn waiting(context: JobContext) -> Started {
        let (control, controls) = mpsc::channel(8);
        let (sender, state) = watch::channel(JobState::default());
        let dir = context.dirs.job.clone();
        let task = tokio::spawn(vk_driver::run(context, controls, sender));
        Started {
            control,
            state,
            dir,
            task,
        }
    }

    /// Waits until the output says something.
    pub(crate) async fn says(&mut self, what: &str) {
        let path = self.dir.join("output");
        let said = |_: &JobState| read(&path).contains(what);
        let waited = tokio::time::timeout(Duration::from_secs(120), self.state.wait_for(said));
        waited
            .await
            .expect("it is said in time")
            .expect("the job runs");
    }

    /// What it said so far.
    pub(crate) fn output(&self) -> String {
        read(&self.dir.join("output"))
    }

    pub(crate) async fn end(self) -> Ran {
        let result = self.task.await.unwrap().unwrap();
        let output = read(&self.dir.join("output"));
        assert_eq!(result.output_len, output.len() as u64);
        assert!(!self.dir.join("work").exists(), "files of the job are left");
        let text = std::fs::read(self.dir.join("result.json")).unwrap();
        assert_eq!(serde_json::from_slice::<JobResult>(&text).unwrap(), result);
        assert!(!output.contains(SECRET), "{output}");
        Ran {
            result,
            output,
            dir: self.dir,
        }
    }
}

/// Waits until nothing of a job is left: no process that names its directory, no file below it that
/// this process still has open.
pub(crate) async fn nothing_is_left(job: &Path) {
    let left = || {
        let name = job.to_str().unwrap();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        let mut left: Vec<String> = lines.filter(|line| line.contains(name)).collect();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let open = open.map(|path| path.display().to_string());
        let work = format!("{name}/work/");
        left.extend(open.filter(|path| path.starts_with(&work)));
        left
    };
    let began = std::time::Instant::now();
    loop {
        let left = left();
        if left.is_empty() {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{left:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn read(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    String::from_utf8(text).unwrap()
}

impl Ran {
    /// The trace's lines without stamps and section markers.
    pub(crate) fn lines(&self) -> Vec<&str> {
        let lines = self.output.lines().filter_map(|line| line.get(32..));
        lines.filter(|line| !line.starts_with("section_")).collect()
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.lines().contains(&line)
    }

    /// The stages that ran, by their marks.
    pub(crate) fn stages(&self) -> Vec<String> {
        let text = read(&self.dir.join("stages.jsonl"));
        let marks = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let started = marks.filter(|mark| mark["record"] == "stage_started");
        started
            .map(|mark| mark["stage"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// A job without a repository.
pub(crate) fn spec(script: &[&str]) -> Value {
    json!({
        "kind": "gitlab_ci",
        "server_url": "http://127.0.0.1:9",
        "job": {
            "id": 7, "name": "hello", "stage": "test", "pipeline_id": 1, "project_id": 3,
            "project_name": "p", "project_path": "g/p", "namespace_id": 1,
            "root_namespace_id": 1, "user_id": 1, "runner_id": 0
        },
        "token": "token-of-the-job",
        "timeout_secs": 300,
        "sources": {
            "repo_url": "http://127.0.0.1:9/g/p.git", "object_format": "sha1", "ref": "main",
            "ref_type": "branch", "sha": "1111111111111111111111111111111111111111",
            "before_sha": "", "depth": 20, "allow_fetch": true
        },
        "image": { "name": "busybox:latest" },
        "variables": [variable("GIT_STRATEGY", "none"), {
            "key": "SECRET", "value": SECRET, "public": false, "file": false, "masked": true,
            "raw": true
        }],
        "steps": [step("script", script)],
        "trace": { "sections": true, "limit_bytes": 0 }
    })
}

/// A variable that is nothing special.
pub(crate) fn variable(key: &str, value: &str) -> Value {
    json!({
        "key": key, "value": value, "public": true, "file": false, "masked": false, "raw": false
    })
}

pub(crate) fn step(name: &str, script: &[&str]) -> Value {
    json!({
        "name": name, "script": script, "timeout_secs": 0, "when": "on_success",
        "allow_failure": false
    })
}

/// Adds to a list of a spec.
pub(crate) fn add(spec: &mut Value, list: &str, item: Value) {
    match spec.get_mut(list).and_then(Value::as_array_mut) {
        Some(items) => items.push(item),
        None => spec[list] = json!([item]),
    }
}

/// Runs the host's git for a test.
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let ran = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        // A host may have filters of its own, for LFS.
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(ran.status.success(), "git {args:?}");
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

/// A repository with one commit, served to the job's token `the-token`.
pub(crate) struct Served {
    pub(crate) url: String,
    pub(crate) sha: String,
    /// Bare repositories lie below `g` in it.
    pub(crate) dir: TempDir,
}

/// Serves a repository of a program, a link and a file in a directory.
pub(crate) fn served() -> Served {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    std::fs::create_dir_all(work.join("sub")).unwrap();
    std::fs::write(work.join("sub/file"), "of the repository\n").unwrap();
    std::fs::write(work.join("run.sh"), "#!/bin/sh\necho the program ran\n").unwrap();
    std::os::unix::fs::symlink("sub/file", work.join("link")).unwrap();
    git(&work, &["init", "-q", "-b", "main"]);
    git(&work, &["add", "."]);
    git(&work, &["update-index", "--chmod=+x", "run.sh"]);
    git(&work, &["commit", "-q", "-m", "one"]);
    git(dir.path(), &["clone", "-q", "--bare", "work", "g/p.git"]);
    let bare = dir.path().join("g/p.git");
    let server = GitServer::start(dir.path().to_owned(), false);
    Served {
        url: server.url("g/p.git"),
        sha: git(&bare, &["rev-parse", "main"]),
        dir,
    }
}

/// A job that fetches what is served.
pub(crate) fn spec_of(served: &Served, script: &[&str]) -> Value {
    let mut job = spec(script);
    job["token"] = json!("the-token");
    job["variables"] = json!([variable("GIT_STRATEGY", "fetch")]);
    job["sources"]["repo_url"] = json!(served.url);
    job["sources"]["sha"] = json!(served.sha);
    job["sources"]["refspecs"] = json!(["+refs/heads/main:refs/remotes/origin/main"]);
    job
}

/// What a job of [`served`] must say whatever runs it: the sources are there, whole, and its own.
pub(crate) const SOURCES_SCRIPT: [&str; 5] = [
    "./run.sh",
    "cat link",
    "cat .git/HEAD",
    "echo more >> sub/file && cat sub/file && rm -rf sub && echo removed",
    "cat .git/config; grep -r the-token . || echo no token",
];

/// Checks that.
pub(crate) fn check_sources(ran: &Ran, served: &Served) {
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    for line in [
        "the program ran",
        "of the repository",
        "more",
        "removed",
        "no token",
    ] {
        assert!(ran.has(line), "no {line:?} in {}", ran.output);
    }
    assert!(ran.has(&served.sha), "{}", ran.output);
    assert!(
        ran.has(&format!("\turl = {}", served.url)),
        "{}",
        ran.output
    );
    let sha = served.sha.get(..8).unwrap();
    let checked = format!("\x1b[32;1mChecking out {sha} as detached HEAD (ref is main)...\x1b[0;m");
    assert!(ran.has(&checked), "{}", ran.output);
}
