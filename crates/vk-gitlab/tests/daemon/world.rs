//! A daemon between a GitLab and a hub that a test decides.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use vk_gitlab::config::Config;
use vk_gitlab::edge::{Daemon, Ended, Word};
use vk_gitlab::operator::Operator;
use vk_gitlab::session::{Line, Said, Told};
use vk_gitlab::state::StateDir;
use vk_hub_client::{Dialer, HubUrl, Key, Signer, Trust, api};
use vk_hub_proto::RelayId;
use vk_hub_proto::relay_session::ServerStatus;
use vk_kill::KillPoints;

use crate::gitlab::{self, GitLab};
use crate::hub::{self, Hub};

pub(crate) const RELAY: RelayId = RelayId::from_bytes([1; 16]);

pub(crate) struct World {
    pub(crate) gitlab: GitLab,
    pub(crate) hub: Hub,
    pub(crate) dir: tempfile::TempDir,
    gitlab_url: String,
    hub_url: HubUrl,
}

/// A daemon that runs.
pub(crate) struct Running {
    pub(crate) operator: Operator,
    pub(crate) words: mpsc::Sender<Word>,
    /// What the session tells.
    pub(crate) session: mpsc::Sender<Told>,
    task: JoinHandle<Ended>,
}

impl World {
    pub(crate) async fn new() -> World {
        World::with(None).await
    }

    /// One whose GitLab speaks TLS so.
    pub(crate) async fn with(tls: Option<TlsAcceptor>) -> World {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (gitlab, gitlab_port) = gitlab::start(tls).await;
        let (hub, hub_port) = hub::start().await;
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let world = World {
            gitlab,
            hub,
            dir,
            gitlab_url: format!("{scheme}://127.0.0.1:{gitlab_port}"),
            hub_url: format!("http://127.0.0.1:{hub_port}").parse().unwrap(),
        };
        world.token("ci", "glrt-t1_abcdefghijkl");
        world.configure("", &["ci"]);
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a runner's token file, as a tool does that replaces files.
    pub(crate) fn token(&self, runner: &str, token: &str) {
        let new = self.path("new");
        fs::write(&new, token).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(new, self.path(&format!("{runner}.token"))).unwrap();
    }

    pub(crate) fn token_file(&self, runner: &str) -> PathBuf {
        self.path(&format!("{runner}.token"))
    }

    /// Writes a configuration: what stands above, and runners by name.
    pub(crate) fn configure(&self, top: &str, runners: &[&str]) {
        let mut text = format!(
            "state_dir = 'state'\ncheck_interval = 1\n{top}\n[gitlab]\nurl = '{}'\n",
            self.gitlab_url
        );
        for runner in runners {
            text += &format!("[[runners]]\nname = '{runner}'\ntoken_file = '{runner}.token'\n");
        }
        fs::write(self.path("config.toml"), text).unwrap();
    }

    pub(crate) fn add_to_configuration(&self, more: &str) {
        let text = fs::read_to_string(self.config_file()).unwrap();
        fs::write(self.config_file(), text + more).unwrap();
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.path("config.toml")
    }

    /// Starts the daemon, whose GitLab server the hub approves.
    pub(crate) fn start(&self) -> Running {
        let running = self.start_unapproved();
        running.session.try_send(approved()).unwrap();
        running
    }

    /// Starts the daemon; the hub says nothing of its GitLab server.
    pub(crate) fn start_unapproved(&self) -> Running {
        let config = Config::read(&self.config_file()).unwrap().0;
        let state = StateDir::open(&config.state_dir).unwrap();
        let system_id = "r_abcdefghijkl".to_owned();
        let mut operator = Operator::new(self.config_file(), config, state, RELAY, system_id);
        let dialer = Dialer::new(self.hub_url.clone(), &Trust::Pem(Vec::new())).unwrap();
        let signer = Signer {
            relay: RELAY,
            key: Key::generate().unwrap(),
        };
        let observer = operator.metrics().hub_observer();
        let client = Arc::new(api::Client::new(dialer, signer).with_observer(observer));
        let settings = operator.settings().unwrap();
        let url = self.hub_url.to_string();
        let (session, told) = mpsc::channel(16);
        let line = Line {
            about: operator.about(),
            changed: Arc::default(),
            told,
        };
        let kill = KillPoints::from_env().unwrap();
        let daemon = Daemon::open(RELAY, client, url, settings, line, kill).unwrap();
        let (words, inbox) = mpsc::channel(2);
        let task = tokio::spawn(daemon.run(inbox));
        Running {
            operator,
            words,
            session,
            task,
        }
    }

    /// The state file of a runner.
    pub(crate) fn state(&self, runner: &str) -> String {
        fs::read_to_string(self.path(&format!("state/{runner}.json"))).unwrap_or_default()
    }

    /// Waits until the state file of the runner `ci` holds this.
    pub(crate) async fn kept(&self, part: &str) {
        for _ in 0..6000 {
            if self.state("ci").contains(part) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("not kept within 60 s: {part}\n{}", self.state("ci"));
    }

    /// Waits until the hub runs so many jobs.
    pub(crate) async fn running(&self, jobs: usize) {
        self.hub
            .until("the hub runs the jobs", |state| state.running() == jobs)
            .await;
    }

    /// Puts a job into GitLab's queue.
    pub(crate) fn queue(&self, job: u64) {
        self.gitlab
            .change(|state| state.queue.push_back(gitlab::job(job)));
    }

    /// Waits until GitLab was told how a job ended.
    pub(crate) async fn over(&self, job: u64) {
        self.gitlab
            .until("the job is over", |state| state.is_over(job))
            .await;
    }
}

/// The hub's word that jobs may be asked for.
pub(crate) fn approved() -> Told {
    server(ServerStatus::Approved)
}

/// The hub's word on the GitLab server.
pub(crate) fn server(status: ServerStatus) -> Told {
    let message = None;
    Told::Server { status, message }
}

impl Running {
    pub(crate) async fn hears(&self, told: Told) {
        self.session.send(told).await.unwrap();
    }

    /// What the session would say now, all that was told before being heard.
    pub(crate) async fn says(&self) -> Said {
        let (answer, said) = oneshot::channel();
        self.hears(Told::WhatToSay(answer)).await;
        said.await.unwrap()
    }

    pub(crate) async fn say(&self, word: Option<Word>) {
        self.words.send(word.expect("a word")).await.unwrap();
    }

    pub(crate) async fn stop(&self) {
        self.say(Some(Word::Stop)).await;
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(self) -> Ended {
        let Running { operator, task, .. } = self;
        let ended = tokio::time::timeout(Duration::from_secs(60), task).await;
        drop(operator);
        ended.expect("it ends").unwrap()
    }
}
