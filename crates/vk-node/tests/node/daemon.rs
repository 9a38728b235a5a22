//! The daemon as a process of this test program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use vk_hub_client::Key;
use vk_hub_client::enrolment::Enrolment;
use vk_hub_proto::node_session::Versions;
use vk_hub_proto::{JobId, NodeId};
use vk_node::config::Config;
use vk_node::daemon::{self, DaemonError, Setup};
use vk_node::job::directory::JobDir;
use vk_node::state_dir::StateDir;

use crate::scripted::program;

/// How a test tells the process where to work.
const DIR: &str = "VK_TEST_NODE_DIR";
/// How the process ends where the hub refused it for good.
pub const REFUSED: i32 = 3;

/// No test: the daemon's process.
#[test]
fn daemon_process() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let config = Config::read(Some(&dir.join("config.toml"))).unwrap();
        let state = StateDir::open(&config.state_dir).unwrap();
        let lock = state.lock().unwrap();
        let enrolment = state.enrolment().load::<NodeId>().unwrap().unwrap();
        let versions = Versions {
            vk: "0.0.1".to_owned(),
            guest_kernel: None,
            config_hash: config.hash.clone(),
            vk_sha256: None,
        };
        let setup = Setup {
            config,
            state,
            lock,
            enrolment,
            program: program(),
            settings: serde_json::Value::Null,
            versions,
            kill: vk_kill_points(),
        };
        match Box::pin(daemon::run(setup)).await {
            Err(DaemonError::Refused(_)) => std::process::exit(REFUSED),
            ended => ended.unwrap(),
        }
    });
}

fn vk_kill_points() -> vk_kill::KillPoints {
    vk_kill::KillPoints::from_env().unwrap()
}

/// A host with a state directory.
pub struct Node {
    dir: tempfile::TempDir,
    pub state: StateDir,
}

/// Its daemon.
pub struct Daemon(Child);

impl Node {
    /// A node that joined the hub at this URL.
    pub fn joined(url: &str) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let config = "state_dir = \"state\"\n[node]\nrunner = \"none\"\n[executor.schedule]\n\
                      mem_budget = \"6G\"\ndisk_budget = \"100G\"\nwait_timeout_secs = 60\n";
        std::fs::write(dir.path().join("config.toml"), config).unwrap();
        let state = StateDir::open(&dir.path().join("state")).unwrap();
        let enrolment = Enrolment {
            hub: url.parse().unwrap(),
            id: NodeId::from_bytes([5; 16]),
            key: Key::generate().unwrap(),
            ca_pem: None,
        };
        state.enrolment().save(&enrolment).unwrap();
        Node { dir, state }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn job(&self, number: u8) -> JobDir {
        let job = JobId::from_bytes([number; 16]);
        JobDir::new(job, self.state.job(job))
    }

    pub fn start(&self) -> Daemon {
        self.start_with(&[])
    }

    /// A daemon that dies at this kill point, in builds that have them.
    #[cfg(feature = "kill-points")]
    pub fn start_to_die_at(&self, at: Option<&str>) -> Daemon {
        let at = at.map(|at| ("VK_KILL_AT", at));
        self.start_with(at.as_slice())
    }

    /// A daemon with these in its environment.
    pub fn start_with(&self, environment: &[(&str, &str)]) -> Daemon {
        let child = Command::new(std::env::current_exe().unwrap())
            .envs(environment.iter().copied())
            .args(["--exact", "daemon::daemon_process", "--nocapture"])
            .env(DIR, self.dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Daemon(child)
    }
}

impl Daemon {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// As `kill -9` does.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        self.0.wait().unwrap();
    }

    /// Asks it to end.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.0.wait().unwrap()
    }

    /// Whether it ended by itself, of a signal or not.
    #[cfg(feature = "kill-points")]
    pub fn is_over(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Waits until it ends by itself.
    pub fn ended(mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A test that failed leaves no process.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
