//! The configuration of a daemon that runs: read again when an operator says so, and each token file
//! whenever it changes.
//!
//! A file that cannot be used is refused as a whole; the daemon goes on with what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use gitlab_runner_api::{Client, Identity, Info, Leaf, TlsFiles};
use vk_hub_proto::RelayId;

use crate::config::{Config, Runner, read_token};
use crate::edge::{Prepared, Settings, Word};
use crate::metrics::{Meter, Metrics};
use crate::session::About;
use crate::state::StateDir;
use crate::translate;

/// The program's version and revision.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Set by whoever builds a release.
const REVISION: &str = match option_env!("VK_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// What tells one state of a file from another: file system, file, size, and when it changed.
type Print = Option<(u64, u64, u64, i64, i64)>;

/// The configuration in force, and how to come to another.
#[derive(Debug)]
pub struct Operator {
    path: PathBuf,
    config: Config,
    state: StateDir,
    relay: RelayId,
    system_id: String,
    /// Runners whose state files the daemon has read.
    known: BTreeSet<String>,
    prints: BTreeMap<PathBuf, Print>,
    /// The certificate that any of the runners' clients saw last.
    leaf: Leaf,
    metrics: Arc<Metrics>,
}

impl Operator {
    /// An operator of a configuration read from `path`.
    #[must_use]
    pub fn new(
        path: PathBuf,
        config: Config,
        state: StateDir,
        relay: RelayId,
        system_id: String,
    ) -> Operator {
        let prints = prints(&config);
        let labels = config
            .metrics
            .as_ref()
            .is_some_and(|one| one.project_labels);
        let metrics = Metrics::new((VERSION, REVISION), labels, state.written());
        Operator {
            path,
            config,
            state,
            relay,
            system_id,
            known: BTreeSet::new(),
            prints,
            leaf: Leaf::default(),
            metrics,
        }
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// What the daemon is, apart from its runners.
    #[must_use]
    pub fn about(&self) -> About {
        let host = rustix::system::uname();
        About {
            version: VERSION.to_owned(),
            host: host.nodename().to_string_lossy().into_owned(),
            system_id: self.system_id.clone(),
            url: self.config.url.clone(),
            tls: self.config.base.is_tls(),
            leaf: self.leaf.watch(),
        }
    }

    /// What the daemon is to run, with the state of runners it does not know yet.
    ///
    /// # Errors
    /// A file that the configuration names cannot be used.
    pub fn settings(&mut self) -> anyhow::Result<Settings> {
        let (mut names, mut tokens) = (BTreeSet::new(), BTreeSet::new());
        let runners = self.config.runners.iter();
        // A token file that was replaced may bring what the configuration was checked for.
        if let Some(twice) = runners.clone().find(|one| !names.insert(&one.name)) {
            bail!(
                "{:?} names two runners: their state would share a file",
                twice.name
            );
        }
        if let Some(twice) = runners
            .clone()
            .find(|one| !tokens.insert(one.token.expose()))
        {
            bail!(
                "runner {:?} has another's token: each runner has one of its own",
                twice.name
            );
        }
        let runners: Vec<Prepared> = runners
            .map(|runner| self.prepare(&self.config, runner))
            .collect::<anyhow::Result<_>>()?;
        self.known
            .extend(runners.iter().map(|runner| runner.config.name.clone()));
        Ok(Settings {
            concurrent: self.config.concurrent,
            shutdown_timeout: self.config.shutdown_timeout,
            place_within_secs: self.config.place_within_secs,
            runners,
        })
    }

    /// Reads the configuration again; nothing where it is refused, which is logged.
    pub fn reload(&mut self) -> Option<Word> {
        let read = Config::read(&self.path).map_err(anyhow::Error::from);
        let read = read.and_then(|(config, warnings)| {
            self.check_fixed(&config)?;
            Ok((config, warnings))
        });
        match read {
            Ok((config, warnings)) => {
                warnings
                    .iter()
                    .for_each(|warning| tracing::warn!("{warning}"));
                self.go_on_with(config, "the configuration was read again")
            }
            Err(error) => {
                refused(&error);
                None
            }
        }
    }

    /// Looks whether a token file has changed; the word that says so.
    pub fn look_at_tokens(&mut self) -> Option<Word> {
        let now = prints(&self.config);
        if now == self.prints {
            return None;
        }
        let before = std::mem::replace(&mut self.prints, now);
        let mut config = self.config.clone();
        for (index, runner) in self.config.runners.iter().enumerate() {
            let Some(path) = &runner.token_file else {
                continue;
            };
            // Also one that has not changed: it may have come with another's, which was refused then.
            let same = before.get(path) == self.prints.get(path);
            match read_token(path, self.config.mounted_secrets) {
                Err(_) if same => {}
                Ok(token) => config = config.with_token(index, token),
                Err(error) => {
                    let error = anyhow::Error::from(error);
                    tracing::warn!(
                        runner = runner.name,
                        "{error:#}; the runner keeps the token it has"
                    );
                }
            }
        }
        if config.runners == self.config.runners {
            return None;
        }
        self.go_on_with(config, "a token file has changed")
    }

    fn go_on_with(&mut self, config: Config, what: &'static str) -> Option<Word> {
        let prints = prints(&config);
        let old = std::mem::replace(&mut self.config, config);
        match self.settings() {
            Ok(settings) => {
                tracing::info!(runners = settings.runners.len(), "{what}");
                self.prints = prints;
                Some(Word::Settings(Box::new(settings)))
            }
            Err(error) => {
                self.config = old;
                refused(&error);
                None
            }
        }
    }

    /// What a daemon that runs cannot change.
    fn check_fixed(&self, new: &Config) -> anyhow::Result<()> {
        let fixed = [
            ("gitlab.url", self.config.base != new.base),
            ("state_dir", self.config.state_dir != new.state_dir),
            (
                "system_id_file",
                self.config.system_id_file != new.system_id_file,
            ),
            ("metrics", self.config.metrics != new.metrics),
        ];
        if let Some((key, _)) = fixed.iter().find(|(_, changed)| *changed) {
            bail!(
                "{}: {key} has changed, which needs a restart",
                self.path.display()
            );
        }
        Ok(())
    }

    fn prepare(&self, config: &Config, runner: &Runner) -> anyhow::Result<Prepared> {
        let stored = self.state.file(&runner.name);
        let file = match self.known.contains(&runner.name) {
            true => None,
            false => Some(stored.read(self.relay)?),
        };
        let mut tls_client = Vec::new();
        if let Some((certificate, key)) = &runner.tls_client {
            tls_client.extend(read(certificate)?);
            tls_client.extend(read(key)?);
        }
        let translation = translate::Runner {
            url: config.url.clone(),
            ca_pem: ca_pem(runner)?,
            token: runner.token.clone(),
            id: 0,
            output_limit: runner.output_limit,
            needs_certificate: false,
            version: VERSION.to_owned(),
            revision: REVISION.to_owned(),
        };
        let client = client(config, runner, &self.system_id)?
            .with_leaf(self.leaf.clone())
            .with_observer(self.metrics.observer());
        let bare = Runner {
            tls_client: None,
            ..runner.clone()
        };
        let bare = match runner.tls_client {
            Some(_) => Some(Arc::new(self::client(config, &bare, &self.system_id)?)),
            None => None,
        };
        Ok(Prepared {
            config: runner.clone(),
            client: Arc::new(client),
            bare,
            meter: Meter::new(Arc::clone(&self.metrics), runner.name.clone()),
            translation,
            tls_client,
            stored,
            file,
        })
    }
}

/// Whether the files that a configuration names can be used.
///
/// # Errors
/// Which one cannot, and why.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    for runner in &config.runners {
        drop(client(config, runner, "r_000000000000")?);
        ca_pem(runner)?;
    }
    Ok(())
}

/// The contents of a runner's `tls_ca_file`, which its jobs get too (CFG-08).
fn ca_pem(runner: &Runner) -> anyhow::Result<Option<String>> {
    let Some(path) = &runner.tls_ca_file else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        bail!("{} holds no certificate in PEM", path.display());
    }
    Ok(Some(text))
}

/// A runner's client of GitLab.
///
/// # Errors
/// A file of TLS cannot be used.
pub(crate) fn client(config: &Config, runner: &Runner, system_id: &str) -> anyhow::Result<Client> {
    let identity = Identity {
        token: runner.token.clone(),
        system_id: system_id.to_owned(),
        info: Info::new(VERSION, REVISION),
    };
    let tls = TlsFiles {
        ca: runner.tls_ca_file.clone(),
        client: runner.tls_client.clone(),
    };
    Client::new(config.base.clone(), identity, &tls)
        .with_context(|| format!("runner {:?} cannot speak to GitLab", runner.name))
}

fn refused(error: &anyhow::Error) {
    tracing::error!("the new settings are refused, the old ones stay in force: {error:#}");
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn prints(config: &Config) -> BTreeMap<PathBuf, Print> {
    let files = config
        .runners
        .iter()
        .filter_map(|runner| runner.token_file.clone());
    files.map(|path| (path.clone(), print(&path))).collect()
}

fn print(path: &Path) -> Print {
    let about = std::fs::metadata(path).ok()?;
    Some((
        about.dev(),
        about.ino(),
        about.size(),
        about.ctime(),
        about.ctime_nsec(),
    ))
}

#[cfg(test)]
mod tests;
