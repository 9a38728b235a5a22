//! `vk-hub serve`: everything built, then bound, then run until a signal.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use vk_hub_core::{OperatorRequest, Settings};
use vk_hub_proto::RelayId;
use vk_kill::KillPoints;

use crate::admin::AdminServer;
use crate::config::Config;
use crate::fleet::{Fleet, FleetHandle, OpenStore};
use crate::http::{Context, Listener, Seats};
use crate::members::Members;
use crate::store::{MemberKind, Sqlite, Store};
use crate::tls::{self, Files};
use crate::tokens::Tokens;

/// How often nodes give a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Below this limit of open files the hub says so: no more clients than the default cap would do.
const FEW_DESCRIPTORS: u64 = 4_096;

/// Runs the hub until it is told to stop.
///
/// # Errors
/// Something it needs is missing, taken or damaged; the message says what to do.
pub(crate) async fn serve(config: Config) -> anyhow::Result<()> {
    let kill = KillPoints::from_env()?;
    let tokens = Tokens::open(&config.registries)?;
    let _lock = lock(&config.data_dir)?;
    let tls = tls_files(&config)?;
    let ca_key = match &tls {
        Some((cert, _)) => tls::ca_key_sha256(cert)?,
        None => [0; 32],
    };
    let database = config.data_dir.join("hub.db");
    let members = Members::open(Box::new(Sqlite::open(&database)?), ca_key)?;
    let open: OpenStore =
        Box::new(move || Ok(Box::new(Sqlite::open(&database)?) as Box<dyn Store>));
    let outputs = config.data_dir.join("jobs");
    let settings = as_a_test_says(&config.settings);
    let (fleet, handle) = Fleet::open(settings, open, outputs, kill)?;
    let fleet = fleet.with_tokens(tokens);
    let server_config = match &tls {
        Some((cert, key)) => Some(tls::server(cert, key)?),
        None => None,
    };
    tokio::spawn(finish_removals(handle.clone(), members.clone()));
    let seats = Seats::new(config.caps);
    let context = Context {
        fleet: handle.clone(),
        members: members.clone(),
        heartbeat: HEARTBEAT,
        seats: seats.clone(),
    };
    raise_descriptor_limit();
    let listener = Listener::bind(config.addr, server_config, context)
        .await
        .with_context(|| format!("cannot listen on {}: set addr in hub.toml", config.addr))?;
    let addr = listener.addr()?.to_string();
    let admin = AdminServer {
        fleet: handle,
        members,
        addr: addr.clone(),
        approve: config.settings.approve,
        seats,
    };
    let socket = AdminServer::bind(&config.admin_socket())?;
    for warning in crate::admin::warnings(config.settings.approve) {
        tracing::warn!("{warning}");
    }
    tracing::info!(addr, tls = tls.is_some(), data_dir = %config.data_dir.display(), "the hub is up");
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    tokio::select! {
        ended = fleet.run() => ended.context("the hub's records cannot be opened")?,
        () = listener.run() => {}
        () = admin.run(socket) => {}
        _ = terminate.recv() => tracing::info!("told to stop"),
        _ = interrupt.recv() => tracing::info!("told to stop"),
    }
    // Whatever was promised is durable already, and nodes and daemons redial.
    Ok(())
}

/// A relay that was removed is no member any more; where the hub died before the fleet let it go, too,
/// that is made up for. Otherwise its GitLab server would count as used for ever.
async fn finish_removals(fleet: FleetHandle, members: Members) {
    let known = |core: &vk_hub_core::Fleet| core.relays().map(|relay| relay.relay).collect();
    // The fleet is gone: so is the hub.
    let Ok(known): Result<Vec<RelayId>, _> = fleet.look(known).await else {
        return;
    };
    let is_stranger =
        |relay: &RelayId| members.find(MemberKind::GitLab, relay.as_bytes()).is_none();
    for relay in known.into_iter().filter(is_stranger) {
        tracing::info!(%relay, "a removal that was cut short is finished");
        if fleet
            .operator(OperatorRequest::RemoveRelay { relay })
            .await
            .is_err()
        {
            return;
        }
    }
}

/// The settings as they are, but for times and bounds that a build with kill points is told.
fn as_a_test_says(settings: &Settings) -> Settings {
    Settings {
        remember_requests: vk_kill::seconds("REMEMBER_REQUESTS", settings.remember_requests),
        redial_window: vk_kill::seconds("REDIAL_WINDOW", settings.redial_window),
        servers: vk_kill::number("SERVERS", settings.servers),
        projects: vk_kill::number("PROJECTS", settings.projects),
        ..settings.clone()
    }
}

/// Every session is a descriptor, and the usual soft limit is 1024: a fleet needs the hard one.
fn raise_descriptor_limit() {
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: found.maximum,
        ..found
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
    let most = found.maximum.unwrap_or(u64::MAX);
    if most < FEW_DESCRIPTORS {
        tracing::warn!(
            most,
            "few files may be open at once: that many nodes and requests at most \
             (LimitNOFILE= in the service unit)"
        );
    }
}

/// What the hub keeps is for its own user.
fn refuse_loose(data_dir: &Path) -> anyhow::Result<()> {
    let mode = data_dir.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        let path = data_dir.display();
        bail!(
            "{path} can be read by others (mode {:o}): chmod 0700 {path}",
            mode & 0o777
        );
    }
    Ok(())
}

/// The data directory's lock, for as long as it is kept.
struct DataLock(File);

impl Drop for DataLock {
    fn drop(&mut self) {
        // Closing alone would not do: a child that another thread has forked and that has not come to
        // its exec holds the file too.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes the data directory's lock: one hub alone.
fn lock(data_dir: &Path) -> anyhow::Result<DataLock> {
    if !data_dir.exists() {
        bail!(
            "{} is not there: run `vk-hub init` first",
            data_dir.display()
        );
    }
    refuse_loose(data_dir)?;
    let path = data_dir.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("another hub runs on {}", data_dir.display()))?;
    Ok(DataLock(file))
}

fn tls_files(config: &Config) -> anyhow::Result<Option<(std::path::PathBuf, std::path::PathBuf)>> {
    if let Some(files) = &config.tls {
        return Ok(Some(files.clone()));
    }
    let files = Files::below(&config.data_dir);
    if files.ca.exists() {
        return Ok(Some((files.cert, files.key)));
    }
    if !config.addr.ip().is_loopback() {
        bail!(
            "{} is not loopback, which needs TLS: run `vk-hub init`, or set tls_cert and tls_key",
            config.addr
        );
    }
    Ok(None)
}

/// `vk-hub init`: the data directory, the CA, the certificate.
///
/// # Errors
/// It was done before, or a file cannot be written.
pub(crate) fn init(config: &Config, mut names: Vec<String>) -> anyhow::Result<()> {
    tls::private_dir(&config.data_dir)?;
    refuse_loose(&config.data_dir)?;
    let host = rustix::system::uname();
    let own = [
        host.nodename().to_str().unwrap_or_default(),
        "localhost",
        "127.0.0.1",
        "::1",
    ];
    names.extend(
        own.iter()
            .filter(|name| !name.is_empty())
            .map(|name| (*name).to_owned()),
    );
    names.sort();
    names.dedup();
    let files = Files::below(&config.data_dir);
    files.make(names.clone())?;
    println!("made {} for {}", files.cert.display(), names.join(", "));
    println!("start the hub with `vk-hub serve`; `vk-hub token create` then lets nodes join");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_that_others_may_read_is_refused_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let loose = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), loose).unwrap();
        let path = dir.path().join("hub.toml");
        std::fs::write(&path, "data_dir = '.'").unwrap();
        let config = Config::read(Some(&path)).unwrap();
        let error = init(&config, Vec::new()).unwrap_err().to_string();
        assert!(error.contains("chmod 0700"), "{error}");
        assert!(!Files::below(&config.data_dir).ca.exists());
    }

    #[test]
    fn a_lock_that_is_dropped_is_free_although_a_fork_still_holds_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(dir.path(), private).unwrap();
        let held = lock(dir.path()).unwrap();
        let _fork = held.0.try_clone().unwrap();
        assert!(lock(dir.path()).is_err(), "two hubs on one directory");
        drop(held);
        lock(dir.path()).map(drop).unwrap();
    }
}
