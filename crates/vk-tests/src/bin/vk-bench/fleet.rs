//! Hub and node, as a small fleet has them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;
use vk_tests::port;

use crate::program::{Program, eventually, run};

/// What the process stand-in for VMs wants to be told.
const ALLOW: (&str, &str) = ("VK_ALLOW_PROCESS_VMM", "for-tests");

/// What the node runs its jobs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guests {
    /// Processes of the agent: for what would be lost among the boots of machines.
    Processes,
    /// VMs of this image, one CPU and 512 MiB each.
    Machines(&'static str),
}

/// Hub and node.
pub(crate) struct Fleet {
    root: PathBuf,
    dir: PathBuf,
    pub(crate) url: String,
    guests: Guests,
    _hub: Option<Program>,
    _node: Option<Program>,
}

impl Fleet {
    pub(crate) fn start(root: &Path, dir: &Path, guests: Guests) -> anyhow::Result<Fleet> {
        let port = port::free();
        let mut fleet = Fleet {
            root: root.to_owned(),
            dir: dir.to_owned(),
            url: format!("https://localhost:{port}"),
            guests,
            _hub: None,
            _node: None,
        };
        fleet.configure(port)?;
        run(&mut fleet.hub(&["init"]))?;
        fleet._hub = Some(Program::start(
            &mut fleet.hub(&["serve"]),
            &dir.join("hub.log"),
        )?);
        let mut import = fleet.vk(&["image", "import", "--state-dir"]);
        import.arg(dir.join("node"));
        let image = fleet.image();
        run(import
            .arg(root.join(format!("images/{image}.tar")))
            .arg(image))?;
        let token = dir.join("node-token");
        fs::write(&token, fleet.token(&[])?)?;
        let mut join = fleet.vk(&["node", "join", &fleet.url, "--token-file"]);
        run(join.arg(&token).arg("--config").arg(dir.join("vk.toml")))?;
        let mut node = fleet.vk(&["node", "run", "--config"]);
        node.arg(dir.join("vk.toml"));
        let mut node = Program::start(&mut node, &dir.join("node.log"))?;
        eventually("the node is there", || {
            node.log()?;
            Ok(run(&mut fleet.hub(&["nodes"]))?
                .contains("ready")
                .then_some(()))
        })?;
        fleet._node = Some(node);
        Ok(fleet)
    }

    fn configure(&self, port: u16) -> anyhow::Result<()> {
        let hub =
            format!("addr = '127.0.0.1:{port}'\ndata_dir = 'hub'\n[gitlab]\napprove = 'all'\n");
        fs::write(self.dir.join("hub.toml"), hub)?;
        let guests = match self.guests {
            Guests::Processes => {
                let agent = self.root.join("bin-process/vk-agent");
                format!("process_agent = '{}'\nmem = '256M'\n", agent.display())
            }
            Guests::Machines(_) => {
                let bundle = self.root.join("guest");
                format!("bundle = '{}'\nmem = '512M'\n", bundle.display())
            }
        };
        let node = format!(
            "state_dir = 'node'\n[node]\nrunner = 'none'\n[executor]\nimage = '{}'\n\
             [executor.vm]\n{guests}cpus = 1\n[executor.schedule]\n\
             disk_admission = false\nmem_budget = '2G'\n",
            self.image(),
        );
        fs::write(self.dir.join("vk.toml"), node)?;
        Ok(())
    }

    fn hub(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.root.join("bin/vk-hub"));
        command.arg("--config").arg(self.dir.join("hub.toml"));
        command.args(arguments);
        command
    }

    fn vk(&self, arguments: &[&str]) -> Command {
        let mut command = match self.guests {
            Guests::Processes => {
                let mut command = Command::new(self.root.join("bin-process/vk"));
                command.env(ALLOW.0, ALLOW.1);
                command
            }
            Guests::Machines(_) => Command::new(self.root.join("bin/vk")),
        };
        command.args(arguments);
        command
    }

    const fn image(&self) -> &'static str {
        match self.guests {
            Guests::Processes => "busybox",
            Guests::Machines(image) => image,
        }
    }

    /// An enrolment token.
    pub(crate) fn token(&self, kind: &[&str]) -> anyhow::Result<String> {
        eventually("the hub makes a token", || {
            let made = self.hub(&[&["token", "create"], kind].concat()).output()?;
            let token = String::from_utf8(made.stdout)?;
            Ok(made.status.success().then_some(token))
        })
    }

    /// When the node received each job's start, by GitLab's number: Unix milliseconds.
    pub(crate) fn received(&self) -> anyhow::Result<BTreeMap<u64, u64>> {
        let mut jobs = self.vk(&["node", "jobs", "--json", "--config"]);
        let jobs: Value = serde_json::from_str(&run(jobs.arg(self.dir.join("vk.toml")))?)?;
        let jobs = jobs.as_array().context("the node's jobs")?;
        let received =
            |job: &Value| Some((job["gitlab_id"].as_u64()?, job["received_ms"].as_u64()?));
        Ok(jobs.iter().filter_map(received).collect())
    }
}
