//! From the configuration to a running daemon.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use vk_hub_client::enrolment::{Directory, Enrolment};
use vk_hub_client::{Signer, api};
use vk_hub_proto::RelayId;
use vk_kill::KillPoints;

use crate::config::Config;
use crate::edge::{Daemon, Ended, Word};
use crate::operator::Operator;
use crate::state::StateDir;
use crate::verify::{self, Says, Verdict};
use crate::{metrics, session, system_id};

/// How often token files are looked at.
const LOOK: Duration = Duration::from_secs(10);

/// Takes jobs until told to stop.
///
/// # Errors
/// Something it needs is missing, taken or damaged; the message says what to do.
pub(crate) async fn run(config: Config, path: &Path) -> anyhow::Result<()> {
    // First of all: a SIGHUP that comes too early would end the program.
    let signals = Signals::new()?;
    let kill = KillPoints::from_env()?;
    let state = StateDir::open(&config.state_dir)?;
    state.check_enrolment()?;
    let enrolment: Enrolment<RelayId> = match Directory::at(config.hub_dir()).load()? {
        Some(enrolment) => enrolment,
        None => bail!("this daemon is enrolled with no hub: vk-gitlab join <hub-url> --token -"),
    };
    let relay = enrolment.id;
    let dialer = enrolment.dialer()?;
    let hub_url = enrolment.hub.to_string();
    let signer = Signer {
        relay,
        key: enrolment.key,
    };
    warn_of_strangers(&config, &state)?;
    let system_id = system_id(&config)?;
    let mut operator = Operator::new(path.to_owned(), config, state, relay, system_id);
    let hub = api::Client::new(dialer, signer).with_observer(operator.metrics().hub_observer());
    let hub = Arc::new(hub);
    let settings = operator.settings()?;
    let runners = settings.runners.len();
    let session = session::hold(Arc::clone(&hub), operator.about());
    let daemon = Daemon::open(relay, hub, hub_url.clone(), settings, session, kill)
        .context("a state file's jobs do not fit together")?;
    tracing::info!(gitlab = operator.config().url, hub = hub_url, %relay, runners, "the daemon is up");
    let (say, words) = mpsc::channel(2);
    if let Some(metrics) = &operator.config().metrics {
        let served = metrics::serve(&metrics.listen, operator.metrics(), say.clone()).await;
        served.with_context(|| format!("metrics cannot be served on {:?}", metrics.listen))?;
    }
    tokio::spawn(operate(operator, signals, say, LOOK));
    match daemon.run(words).await {
        Ended::Drained => tracing::info!("no job was left"),
        Ended::JobsLeft(jobs) => {
            tracing::info!(jobs, "jobs run on; the next start carries them on");
        }
    }
    Ok(())
}

/// The system ID, beside the configuration or, where nothing can be written there, with the state.
fn system_id(config: &Config) -> anyhow::Result<String> {
    system_id_by(config, system_id::read_or_make)
}

fn system_id_by(
    config: &Config,
    keep: impl Fn(&Path) -> io::Result<String>,
) -> anyhow::Result<String> {
    let mut path = &config.system_id_file;
    let mut id = keep(path);
    let unwritable = |error: &io::Error| {
        let kind = error.kind();
        matches!(
            kind,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
        )
    };
    if let (Err(error), Some(other)) = (&id, &config.system_id_else)
        && unwritable(error)
    {
        path = other;
        id = keep(path);
    }
    id.with_context(|| format!("cannot keep the system ID in {}", path.display()))
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

/// What the system tells a daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Signals> {
        let of = |kind| signal(kind).context("signals cannot be waited for");
        Ok(Signals {
            terminate: of(SignalKind::terminate())?,
            interrupt: of(SignalKind::interrupt())?,
            hangup: of(SignalKind::hangup())?,
        })
    }
}

/// Says what signals and changed token files mean, until nobody listens any more.
async fn operate(
    mut operator: Operator,
    mut signals: Signals,
    say: mpsc::Sender<Word>,
    every: Duration,
) {
    let mut look = tokio::time::interval(every);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let word = tokio::select! {
            _ = signals.terminate.recv() => Some(Word::Stop),
            _ = signals.interrupt.recv() => Some(Word::Stop),
            _ = signals.hangup.recv() => operator.reload(),
            _ = look.tick() => operator.look_at_tokens(),
        };
        if let Some(word) = word
            && say.send(word).await.is_err()
        {
            return;
        }
    }
}

/// Prints what GitLab says of every runner's token (CFG-19).
///
/// # Errors
/// GitLab refused one, or did not answer.
pub(crate) async fn verify(config: Config) -> anyhow::Result<()> {
    let verdicts = verify::verify(&config, &system_id(&config)?).await?;
    for verdict in &verdicts {
        println!("{verdict}");
    }
    let taken = |verdict: &&Verdict| matches!(verdict.says, Says::Taken { .. });
    let bad = verdicts.len() - verdicts.iter().filter(taken).count();
    if bad > 0 {
        bail!("{bad} of {} runners cannot take jobs", verdicts.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use clap::Parser as _;

    use super::*;
    use crate::log::tests::Lines;

    /// STATE-11
    #[test]
    fn a_state_file_that_no_runner_owns_is_warned_about() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let path = dir.path().join("config.toml");
        let text = "state_dir = '.'\n[gitlab]\nurl = 'https://gitlab.example.com'\n\
                    [[runners]]\nname = 'ci'\ntoken = 'glrt-t1_abcdefghijkl'\n";
        std::fs::write(&path, text).unwrap();
        for name in ["ci.json", "old.json", ".ci.json.new"] {
            std::fs::write(dir.path().join(name), "{}").unwrap();
        }
        let config = Config::read(&path).unwrap().0;
        let state = StateDir::open(&config.state_dir).unwrap();
        let (lines, _guard) = Lines::start();
        warn_of_strangers(&config, &state).unwrap();
        let lines = lines.with("WARN");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("old.json"), "{lines:?}");
    }

    /// GL-67
    #[test]
    fn a_system_id_that_cannot_stand_beside_the_configuration_stands_with_the_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let text = "state_dir = 'state'\n[gitlab]\nurl = 'https://gitlab.example.com'\n\
                    [[runners]]\nname = 'ci'\ntoken = 'glrt-t1_abcdefghijkl'\n";
        std::fs::write(&path, text).unwrap();
        let config = Config::read(&path).unwrap().0;
        drop(StateDir::open(&config.state_dir).unwrap());
        let read_only = |path: &Path| match path.starts_with(&config.state_dir) {
            true => system_id::read_or_make(path),
            false => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        };
        let id = system_id_by(&config, read_only).unwrap();
        let kept = config.state_dir.join(".vk-gitlab-system-id");
        assert!(std::fs::read_to_string(kept).unwrap().starts_with(&id));
        assert_eq!(system_id_by(&config, read_only).unwrap(), id);
        let named = Config {
            system_id_else: None,
            ..config.clone()
        };
        assert!(
            system_id_by(&named, read_only).is_err(),
            "a place that was named is meant"
        );
    }

    #[test]
    fn the_unit_calls_the_program_as_it_is_and_waits_long_enough() {
        let unit = include_str!("../../../packaging/vk-gitlab.service");
        let value = |key: &str| {
            let mut lines = unit.lines().filter_map(|line| line.split_once('='));
            lines.find(|(name, _)| *name == key).unwrap().1
        };
        let cli = crate::Cli::try_parse_from(value("ExecStart").split(' ')).unwrap();
        assert!(matches!(cli.command, crate::cli::Command::Run));
        let seconds: u64 = value("TimeoutStopSec").parse().unwrap();
        assert!(
            seconds > 60 + 30,
            "an open request, and the usual shutdown_timeout"
        );
        assert_eq!(value("StateDirectoryMode"), "0700");
    }

    /// GL-75
    #[tokio::test]
    async fn signals_and_token_files_become_words() {
        use rustix::process::{Signal, getpid, kill_process};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let text = "state_dir = 'state'\n[gitlab]\nurl = 'https://gitlab.example.com'\n\
                    [[runners]]\nname = 'ci'\ntoken_file = 'token'\n";
        std::fs::write(&path, text).unwrap();
        let token = dir.path().join("token");
        std::fs::write(&token, "glrt-t1_abcdefghijkl").unwrap();
        let config = Config::read(&path).unwrap().0;
        let state = StateDir::open(&config.state_dir).unwrap();
        let relay = RelayId::from_bytes([1; 16]);
        let mut operator =
            Operator::new(path.clone(), config, state, relay, "r_abcdefghijkl".into());
        operator.settings().unwrap();
        let (say, mut words) = mpsc::channel(2);
        let every = Duration::from_millis(20);
        tokio::spawn(operate(operator, Signals::new().unwrap(), say, every));
        let mut settings = async || match words.recv().await {
            Some(Word::Settings(settings)) => *settings,
            _ => panic!("settings"),
        };
        kill_process(getpid(), Signal::HUP).unwrap();
        assert_eq!(settings().await.concurrent, 1);
        std::fs::write(&path, format!("concurrent = 7\n{text}")).unwrap();
        kill_process(getpid(), Signal::HUP).unwrap();
        assert_eq!(settings().await.concurrent, 7);
        std::fs::write(&token, "glrt-t1_mnopqrstuvwx").unwrap();
        let token = settings().await.runners.remove(0).config.token;
        assert_eq!(token.expose(), "glrt-t1_mnopqrstuvwx");
        for signal in [Signal::TERM, Signal::INT] {
            kill_process(getpid(), signal).unwrap();
            assert!(matches!(words.recv().await, Some(Word::Stop)), "{signal:?}");
        }
    }
}
