//! One hub, one node, one daemon, on loopback, in the private directory.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};

use super::error::{RunError, file};
use super::images;
use super::keeper::{Event, Order};
use super::kept::Kept;
use super::options::{FleetOptions, private_parent};
use super::programs::{Call, Programs};
use super::settings;

/// How long a program may take to be there.
const START: Duration = Duration::from_secs(60);
/// How long one may take to end once asked.
const STOP: Duration = Duration::from_secs(15);
/// A pause between two looks.
const PAUSE: Duration = Duration::from_millis(15);
/// What is shown of a log.
const SHOWN: usize = 1_500;

/// The programs that run, in the order in which they end.
const NAMES: [&str; 3] = ["daemon", "node", "hub"];

/// A fleet.
#[derive(Debug)]
pub(super) struct Fleet {
    kept: Kept,
    pub(super) programs: Programs,
    running: Vec<String>,
    /// What the node remembers of KVM from one run to the next.
    kvm: PathBuf,
}

#[derive(Deserialize)]
struct HubStatus {
    addr: String,
}

impl Fleet {
    /// Makes the private directory; nothing runs in it yet.
    pub(super) async fn open(options: &FleetOptions) -> Result<Self, RunError> {
        let programs = Programs::find()?;
        let state = options.state()?;
        private_dir(&state)?;
        let kept = Kept::start(&private_parent()).await?;
        Ok(Self {
            kept,
            programs,
            running: Vec::new(),
            kvm: state.join("kvm.json"),
        })
    }

    /// The private directory.
    pub(super) fn dir(&self) -> &Path {
        &self.kept.dir
    }

    /// A program's log.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.dir().join(format!("{name}.log"))
    }

    /// Starts all three, with `gitlab` as their GitLab.
    pub(super) async fn start(
        &mut self,
        options: &FleetOptions,
        gitlab: &str,
    ) -> Result<(), RunError> {
        settings::write(self.dir(), options, gitlab)?;
        let node = self.dir().join("node");
        private_dir(&node)?;
        let store = options.image_store()?;
        private_dir(&store)?;
        let link = node.join("images");
        symlink(&store, &link).map_err(file("link to the images by", &link))?;
        if self.kvm.exists() {
            // What cannot be copied is found out again.
            let _ = fs::copy(&self.kvm, node.join("kvm.json"));
        }
        let memory = options.state()?.join("imports.json");
        let (programs, import) = (self.programs.clone(), options.import.clone());
        let (imported, joined) = tokio::join!(
            images::import(&programs, &node, &memory, &import),
            self.join()
        );
        imported?;
        joined?;
        let config = self.at("node.toml");
        let vk = self.programs.vk.clone();
        self.launch("node", vk, vec!["node", "run", "--config", &config])
            .await?;
        let config = self.at("daemon.toml");
        let daemon = self.programs.daemon.clone();
        self.launch("daemon", daemon, vec!["-c", &config, "run"])
            .await
    }

    /// Starts the hub and has node and daemon join it.
    async fn join(&mut self) -> Result<(), RunError> {
        self.hub_call(&["init"]).run(None).await?;
        let config = self.at("hub.toml");
        let hub = self.programs.hub.clone();
        self.launch("hub", hub, vec!["--config", &config, "serve"])
            .await?;
        let socket = self.dir().join("hub/admin.sock");
        let there = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        self.until("hub", there).await?;
        let status: HubStatus = self.hub_call(&["status", "--json"]).json().await?;
        let url = format!("https://{}", status.addr);
        let token = self.hub_call(&["token", "create"]).run(None).await?;
        let config = self.at("node.toml");
        Call::new(&self.programs.vk)
            .args(["node", "join", &url, "--token", "-", "--config", &config])
            .run(Some(&String::from_utf8_lossy(&token)))
            .await?;
        let create = ["token", "create", "--kind", "gitlab"];
        let token = self.hub_call(&create).run(None).await?;
        let config = self.at("daemon.toml");
        Call::new(&self.programs.daemon)
            .args(["-c", &config, "join", &url, "--token", "-"])
            .run(Some(&String::from_utf8_lossy(&token)))
            .await?;
        Ok(())
    }

    fn at(&self, name: &str) -> String {
        self.dir().join(name).to_string_lossy().into_owned()
    }

    /// A command of the hub.
    pub(super) fn hub_call(&self, arguments: &[&str]) -> Call {
        let call = Call::new(&self.programs.hub)
            .arg("--config")
            .arg(self.dir().join("hub.toml"));
        arguments.iter().fold(call, Call::arg)
    }

    /// A command of the node.
    pub(super) fn node_call(&self, arguments: &[&str]) -> Call {
        let call = Call::new(&self.programs.vk).arg("node");
        let call = arguments.iter().fold(call, Call::arg);
        call.arg("--config").arg(self.dir().join("node.toml"))
    }

    async fn launch(
        &mut self,
        name: &str,
        program: PathBuf,
        arguments: Vec<&str>,
    ) -> Result<(), RunError> {
        let order = Order::Start {
            name: name.to_owned(),
            program,
            arguments: arguments.into_iter().map(str::to_owned).collect(),
            log: self.log(name),
        };
        self.running.push(name.to_owned());
        self.kept.order(&order).await
    }

    /// Waits until something holds; a program that ends meanwhile ends the wait.
    async fn until(
        &mut self,
        what: &'static str,
        holds: impl Fn() -> bool,
    ) -> Result<(), RunError> {
        let deadline = Instant::now() + START;
        while !holds() {
            if Instant::now() >= deadline {
                return Err(RunError::Slow {
                    what,
                    secs: START.as_secs(),
                    said: tail(&self.log(what)),
                });
            }
            tokio::select! {
                failed = self.failure() => return Err(failed),
                () = sleep(PAUSE) => {}
            }
        }
        Ok(())
    }

    /// Resolves when a program ends by itself, with what is known of that. A call that is dropped
    /// loses nothing.
    pub(super) async fn failure(&mut self) -> RunError {
        match self.kept.event().await {
            Ok(Event::Ended { name, code }) => {
                self.running.retain(|known| *known != name);
                let said = tail(&self.log(&name));
                let how = how(code);
                RunError::Ended { name, how, said }
            }
            Ok(Event::Failed { name, why }) => RunError::Keeper(format!("{name}: {why}")),
            Ok(other) => RunError::Keeper(format!("it tells {other:?}")),
            Err(error) => error,
        }
    }

    /// Keeps what the node found out about KVM.
    pub(super) fn remember(&self) {
        let found = self.dir().join("node/kvm.json");
        if !found.exists() {
            return;
        }
        let beside = self.kvm.with_extension("new");
        // What is not remembered is found out again.
        let _ = fs::copy(found, &beside).and_then(|_| fs::rename(&beside, &self.kvm));
    }

    /// Asks a program to end and waits until it has; whether it did. `after` is done once it was
    /// asked.
    pub(super) async fn stop(&mut self, name: &str, after: impl FnOnce()) -> bool {
        if !self.running.iter().any(|known| known == name) {
            return true;
        }
        let order = Order::Stop { name: name.into() };
        if self.kept.order(&order).await.is_err() {
            return false;
        }
        after();
        let wait = async {
            while self.running.iter().any(|known| known == name) {
                match self.kept.event().await {
                    Ok(Event::Ended { name, .. }) => self.running.retain(|known| *known != name),
                    Ok(_) => {}
                    Err(_) => return false,
                }
            }
            true
        };
        timeout(STOP, wait).await.unwrap_or(false)
    }

    /// Ends everything, in order where `orderly`; the private directory goes. What is left.
    pub(super) async fn end(mut self, orderly: bool) -> Option<String> {
        if orderly {
            for name in NAMES {
                // One that does not end is ended by the keeper.
                let _ = self.stop(name, || {}).await;
            }
        }
        self.kept.end().await
    }

    /// Copies the programs' logs to a directory.
    pub(super) fn leave_logs(&self, to: &Path) -> Result<(), RunError> {
        fs::create_dir_all(to).map_err(file("create", to))?;
        for name in NAMES {
            let (from, to) = (self.log(name), to.join(format!("{name}.log")));
            if from.exists() {
                fs::copy(&from, &to).map_err(file("write", &to))?;
            }
        }
        Ok(())
    }
}

/// A directory that only its owner can enter, made where it is missing.
pub(super) fn private_dir(path: &Path) -> Result<(), RunError> {
    let mut builder = fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(path);
    made.map_err(file("create", path))
}

fn how(code: i32) -> String {
    match code {
        code if code > 128 => format!("signal {}", code - 128),
        code => format!("exit code {code}"),
    }
}

/// The end of a log, safe to show.
fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let from = bytes.len().saturating_sub(SHOWN);
    let text = String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).into_owned();
    let shown: String = text
        .trim()
        .chars()
        .map(|c| if c.is_control() && c != '\n' { ' ' } else { c })
        .collect();
    if shown.is_empty() {
        return "it said nothing".into();
    }
    format!("\n{shown}")
}
