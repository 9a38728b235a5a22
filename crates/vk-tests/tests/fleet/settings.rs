//! How a fleet is set up.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program::run;

/// What GitLab's host is called.
const HOSTS: [&str; 2] = ["127.0.0.1", "localhost"];

/// What differs from fleet to fleet.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The folder of programs in the test root.
    pub(crate) programs: &'static str,
    /// Whether jobs run in real VMs, whatever else the programs can do.
    pub(crate) machines: bool,
    /// Whether the node finds its hub by a wire that can be cut.
    pub(crate) wired: bool,
    /// `[gitlab] approve` of the hub.
    pub(crate) approve: &'static str,
    /// Whether an operator of a hub that asks approves GitLab's server.
    pub(crate) approved: bool,
    /// Settled jobs that the hub keeps.
    pub(crate) history: u32,
    /// Jobs and job requests that the daemon has at most.
    pub(crate) concurrent: u32,
    /// Job requests of its runner at a time.
    pub(crate) requests: u32,
    /// Whether GitLab holds job requests until there is a job.
    pub(crate) held: bool,
    /// Whether the hub takes a limit of its files' sizes for a full disk, not for its end.
    pub(crate) limited: bool,
    /// Lines of the node's `[node]`. The host that tests run on may be anybody's: what it has of
    /// its own is nothing to them.
    pub(crate) node: String,
    /// Lines of the node's `[executor.vm]`.
    pub(crate) vm: String,
    /// Lines of the node's `[executor.schedule]`.
    pub(crate) schedule: String,
    /// More tables of the hub's configuration.
    pub(crate) hub: String,
    /// Lines of the node's `[registry]`.
    pub(crate) registry: String,
    /// What every program finds in its environment besides.
    pub(crate) environment: Vec<(&'static str, &'static str)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            programs: "bin-process",
            machines: false,
            wired: false,
            approve: "all",
            approved: true,
            history: 10_000,
            concurrent: 2,
            requests: 1,
            held: false,
            limited: false,
            node: "runner = \"none\"".to_owned(),
            vm: String::new(),
            schedule: "mem_budget = \"2G\"".to_owned(),
            hub: String::new(),
            registry: String::new(),
            environment: Vec::new(),
        }
    }
}

impl Settings {
    /// Writes the configurations.
    pub(crate) fn write(&self, dir: &Path, root: &Path, hub: u16, lab: u16) {
        let write = |name: &str, text: String| fs::write(dir.join(name), text).unwrap();
        write(
            "hub.toml",
            format!(
                "addr = \"127.0.0.1:{hub}\"\ndata_dir = \"hub\"\njob_history = {}\n[gitlab]\n\
                 approve = \"{}\"\n{}",
                self.history, self.approve, self.hub
            ),
        );
        let guest = match self.programs {
            "bin-process" if !self.machines => format!(
                "process_agent = \"{}\"\nmem = \"256M\"",
                root.join("bin-process/vk-agent").display()
            ),
            _ => format!(
                "bundle = \"{}\"\nmem = \"512M\"",
                root.join("guest").display()
            ),
        };
        write(
            "vk.toml",
            format!(
                "state_dir = \"node\"\n[node]\n{}\n[executor]\nimage = \"busybox\"\n[executor.vm]\n\
                 {guest}\ncpus = 1\n{}\n[executor.schedule]\ndisk_admission = false\n{}\n\
                 [registry]\n{}\n",
                self.node, self.vm, self.schedule, self.registry
            ),
        );
        write(
            "gitlab.toml",
            format!(
                "concurrent = {}\nstate_dir = \"daemon\"\nsystem_id_file = \"daemon/system_id\"\n\
                 [gitlab]\nurl = \"http://{}:{lab}\"\n[[runners]]\nname = \"one\"\n\
                 token_file = \"runner-token\"\ncheck_interval = 1\nrequest_concurrency = {}\n\
                 [runners.envelope]\nmem = \"512M\"\ncpus = 1\ndisk = \"1G\"\n",
                self.concurrent, HOSTS[0], self.requests
            ),
        );
    }
}

/// Has the daemon call GitLab by the other name.
pub(crate) fn call_gitlab_otherwise(dir: &Path) {
    let file = dir.join("gitlab.toml");
    let text = fs::read_to_string(&file).unwrap();
    let [one, other] = HOSTS.map(|host| format!("http://{host}:"));
    let text = if text.contains(&one) {
        text.replace(&one, &other)
    } else {
        text.replace(&other, &one)
    };
    fs::write(&file, text).unwrap();
}

/// A git repository of one commit.
pub(crate) fn project(dir: &Path) {
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
