//! From the configuration to a running daemon.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use gitlab_runner_api::{Client, Identity, Info, TlsFiles, VerifyOutcome};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use vk_gitlab_core::acquire::{self, Acquire, Session};
use vk_gitlab_core::job::JobRecord;
use vk_hub_client::enrolment::{Directory, Enrolment};
use vk_hub_client::{Signer, api};
use vk_hub_proto::RelayId;
use vk_kill::KillPoints;
use vk_step::{Core as _, Now};

use crate::config::{Config, Runner};
use crate::edge::{Daemon, Ended, RunnerEdge};
use crate::state::StateDir;
use crate::{system_id, translate};

/// The program's version and revision.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Set by whoever builds a release.
const REVISION: &str = match option_env!("VK_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// Takes jobs until told to stop.
///
/// # Errors
/// Something it needs is missing, taken or damaged; the message says what to do.
pub(crate) async fn run(config: Config) -> anyhow::Result<()> {
    let kill = KillPoints::from_env()?;
    let state = StateDir::open(&config.state_dir)?;
    let enrolment: Enrolment<RelayId> = match Directory::at(config.hub_dir()).load()? {
        Some(enrolment) => enrolment,
        None => bail!("this daemon is enrolled with no hub: vk-gitlab join <hub-url> --token -"),
    };
    let relay = enrolment.id;
    let dialer = enrolment.dialer()?;
    let hub_url = enrolment.hub.to_string();
    let hub = api::Client::new(
        dialer,
        Signer {
            relay,
            key: enrolment.key,
        },
    );
    let system_id = system_id(&config)?;
    let mut runners = Vec::new();
    for runner in &config.runners {
        runners.push(open_runner(&config, runner, &state, relay, &system_id)?);
    }
    warn_of_strangers(&config, &state)?;
    let daemon = Daemon::open(
        relay,
        hub,
        hub_url.clone(),
        config.concurrent,
        runners,
        kill,
    )
    .context("a state file's jobs do not fit together")?;
    tracing::info!(gitlab = config.url, hub = hub_url, %relay, runners = config.runners.len(), "the daemon is up");
    let ended = daemon.run(stop_words()?, config.shutdown_timeout).await;
    match ended {
        Ended::Drained => tracing::info!("no job was left"),
        Ended::JobsLeft(jobs) => {
            tracing::info!(jobs, "jobs run on; the next start carries them on")
        }
    }
    Ok(())
}

fn system_id(config: &Config) -> anyhow::Result<String> {
    let path = &config.system_id_file;
    system_id::read_or_make(path)
        .with_context(|| format!("cannot keep the system ID in {}", path.display()))
}

/// State files nobody owns hold jobs nobody resumes (STATE-11).
fn warn_of_strangers(config: &Config, state: &StateDir) -> anyhow::Result<()> {
    for name in state.runners()? {
        if config.runners.iter().all(|runner| runner.name != name) {
            let path = config.state_dir.join(format!("{name}.json"));
            tracing::warn!(path = %path.display(), "no configured runner owns this state file: its jobs are not carried on");
        }
    }
    Ok(())
}

fn client(config: &Config, runner: &Runner, system_id: &str) -> anyhow::Result<Client> {
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

fn open_runner(
    config: &Config,
    runner: &Runner,
    state: &StateDir,
    relay: RelayId,
    system_id: &str,
) -> anyhow::Result<(RunnerEdge, Vec<JobRecord>)> {
    let stored = state.file(&runner.name);
    let file = stored.read(relay)?;
    let jobs = file.jobs.iter().filter(|job| !job.is_over()).count();
    let acquire = acquire::Config {
        placement: runner.placement.clone(),
        limit: runner.limit,
        request_concurrency: runner.request_concurrency,
        lease_secs: runner.lease_secs,
        check_interval: runner.check_interval,
        strict_check_interval: runner.strict_check_interval,
        unhealthy_requests_limit: runner.unhealthy_requests_limit,
        unhealthy_interval: runner.unhealthy_interval,
        session: Session::NotNeeded,
        jobs: u32::try_from(jobs).unwrap_or(u32::MAX),
        seed: 0,
    };
    let ca_pem = match &runner.tls_ca_file {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?,
        ),
        None => None,
    };
    let translation = translate::Runner {
        url: config.url.clone(),
        ca_pem,
        token: runner.token.clone(),
        id: 0,
        output_limit: runner.output_limit,
        version: VERSION.to_owned(),
        revision: REVISION.to_owned(),
    };
    let client = Arc::new(client(config, runner, system_id)?);
    let edge = RunnerEdge::open(
        runner.clone(),
        acquire,
        client,
        translation,
        stored,
        file.unknown,
    )?;
    Ok((edge, file.jobs))
}

/// Words to stop: a SIGTERM or SIGINT each.
fn stop_words() -> anyhow::Result<mpsc::Receiver<()>> {
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let (say, words) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if say.send(()).await.is_err() {
                return;
            }
        }
    });
    Ok(words)
}

/// Asks GitLab about every runner's token (CFG-19).
///
/// # Errors
/// GitLab refused one, or did not answer.
pub(crate) async fn verify(config: Config) -> anyhow::Result<()> {
    let system_id = system_id(&config)?;
    let mut bad = 0;
    for runner in &config.runners {
        match client(&config, runner, &system_id)?.verify().await {
            VerifyOutcome::Taken(verified) => {
                let expires = verified
                    .token_expires_at
                    .unwrap_or_else(|| "never".to_owned());
                println!(
                    "{}: taken, runner {}, expires {expires}",
                    runner.name, verified.id
                );
            }
            VerifyOutcome::Refused => {
                bad += 1;
                println!("{}: refused: GitLab does not know this token", runner.name);
            }
            VerifyOutcome::Unavailable(outcome) => {
                bad += 1;
                let status = outcome
                    .status
                    .map_or_else(String::new, |s| format!("status {s} "));
                println!("{}: not known: {status}{}", runner.name, outcome.message);
            }
        }
    }
    if bad > 0 {
        bail!("{bad} of {} runners cannot take jobs", config.runners.len());
    }
    Ok(())
}

impl RunnerEdge {
    /// A runner whose core is fresh: nothing of it is kept.
    fn open(
        config: Runner,
        acquire: acquire::Config,
        client: Arc<Client>,
        translation: translate::Runner,
        stored: crate::state::Stored,
        unknown: std::collections::BTreeMap<String, serde_json::Value>,
    ) -> anyhow::Result<RunnerEdge> {
        let (acquire, effects) = Acquire::open(acquire, Now::ZERO, [])?;
        Ok(RunnerEdge::new(
            config,
            (acquire, effects),
            client,
            translation,
            (stored, unknown),
        ))
    }
}
