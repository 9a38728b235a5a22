//! Walls around each git of the host: what it sees, and how it is started behind them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::timeout;
use vk_vm::confine::{Confinement, Place, Walled, Walls, needed_by};

use super::host::{GitError, Protocols};
use super::limits::Limits;

/// Where programs are looked for.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// What git starts beside its own programs: helpers and filters of ours, in the shell.
const PROGRAMS: [&str; 3] = ["sh", "cat", "sed"];
/// The shell, as git was built to find it.
const SHELL: &str = "/bin/sh";
/// What of git's own programs has libraries that git itself has not.
const TO_SERVERS: &str = "git-remote-http";
/// What is needed on the way to a server: names, and authorities. What is not there is left out.
const NETWORK: [&str; 20] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/gnutls",
    "/etc/crypto-policies",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates",
    "/var/lib/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];
const DEVICES: [&str; 2] = ["/dev/null", "/dev/urandom"];
/// git says where its programs are in milliseconds.
const ASKED: Duration = Duration::from_secs(20);

/// What every git needs on this host.
#[derive(Clone, Debug)]
pub(crate) struct GitWalls(Arc<Needs>);

#[derive(Debug)]
struct Needs {
    helper: PathBuf,
    git: PathBuf,
    places: Vec<Place>,
}

impl GitWalls {
    /// None where the operator has said that nothing is confined here.
    pub(crate) async fn new(confinement: &Confinement) -> Result<Option<GitWalls>, GitError> {
        if confinement.walls == Walls::Off {
            return Ok(None);
        }
        let git = find("git")?;
        let core = exec_path(&git).await?;
        let mut programs = vec![git.clone(), core.join(TO_SERVERS), SHELL.into()];
        for name in PROGRAMS {
            programs.push(find(name)?);
        }
        let mut places = BTreeSet::from([Place::read(core)]);
        // Each is asked of the loader: side by side, since the fetch waits for all.
        let mut asked = JoinSet::new();
        for program in programs {
            let real = program.canonicalize();
            let real = real.map_err(GitError::file("find", &program))?;
            asked.spawn(async move { needed_by(&real, &[]).await });
            places.insert(Place::read(program));
        }
        while let Some(needed) = asked.join_next().await {
            places.extend(needed.map_err(unknown)?.map_err(unknown)?);
        }
        let modules: Vec<_> = places.iter().filter_map(of_c_library).flatten().collect();
        places.extend(modules);
        places.extend(DEVICES.map(Place::device));
        Ok(Some(GitWalls(Arc::new(Needs {
            helper: confinement.helper.clone(),
            git,
            places: places.into_iter().collect(),
        }))))
    }

    /// A command that becomes git behind walls; git's own arguments follow.
    ///
    /// It sees its home and what is `seen` of that which is there.
    pub(super) fn command(
        &self,
        home: &Path,
        seen: &[Place],
        protocols: Protocols,
        limits: Limits,
    ) -> Result<Command, GitError> {
        let at = home.with_file_name("git-view");
        std::fs::create_dir_all(&at).map_err(GitError::file("make", &at))?;
        let mut places = self.0.places.clone();
        if protocols == Protocols::Http {
            let there = NETWORK.iter().filter(|path| Path::new(path).exists());
            places.extend(there.map(Place::read));
        }
        places.push(Place::write(home));
        places.extend(seen.iter().filter(|place| place.path.exists()).cloned());
        let walled = Walled {
            at,
            places,
            directory: home.to_owned(),
            network: protocols == Protocols::Http,
            file_max: limits.file,
            memory_max: (limits.memory != u64::MAX).then_some(limits.memory),
        };
        // Paths in it that are no text are told here, not there.
        let walled = serde_json::to_string(&walled).map_err(unknown)?;
        let mut command = Command::new(&self.0.helper);
        command.args(["guest", "confine", "beside"]);
        command.arg(walled).arg(&self.0.git);
        Ok(command)
    }
}

/// What the C library loads by itself, where this is it: modules for names, and for encodings.
fn of_c_library(place: &Place) -> Option<Vec<Place>> {
    let is_c = place.path.file_name()? == "libc.so.6";
    let dir = place.path.parent().filter(|_| is_c)?;
    let beside = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut modules: Vec<_> = beside
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("libnss_") && name.ends_with(".so.2"))
        })
        .map(Place::read)
        .collect();
    let encodings = dir.join("gconv");
    if encodings.exists() {
        modules.push(Place::read(encodings));
    }
    Some(modules)
}

fn find(name: &str) -> Result<PathBuf, GitError> {
    let mut paths = PATH.split(':').map(|dir| Path::new(dir).join(name));
    let found = paths.find(|path| path.exists());
    found.ok_or_else(|| GitError::Start(io::Error::other(format!("no {name} in {PATH}"))))
}

async fn exec_path(git: &Path) -> Result<PathBuf, GitError> {
    let mut asked = Command::new(git);
    asked.arg("--exec-path").env_clear().kill_on_drop(true);
    let failed = |why: String| {
        let git = git.display();
        GitError::Start(io::Error::other(format!("{git} --exec-path {why}")))
    };
    let told = timeout(ASKED, asked.output()).await;
    let told = told
        .map_err(|_| failed("does not end".to_owned()))?
        .map_err(GitError::Start)?;
    let path = PathBuf::from(String::from_utf8_lossy(&told.stdout).trim());
    if path.is_absolute() && path.is_dir() {
        return Ok(path);
    }
    Err(failed(format!("names no directory: {}", path.display())))
}

fn unknown(error: impl std::error::Error + Send + Sync + 'static) -> GitError {
    GitError::Walls(error.to_string())
}

/// Checks that this host's git runs behind walls: its version, or nothing where the walls are off.
/// `scratch` is an empty directory.
///
/// # Errors
/// What is missing.
pub async fn try_git(
    confinement: &Confinement,
    scratch: &Path,
) -> Result<Option<String>, Box<dyn std::error::Error + Send + Sync>> {
    let Some(walls) = GitWalls::new(confinement).await? else {
        return Ok(None);
    };
    let git = super::HostGit::new(scratch.join("git-home"))?.behind(Some(walls));
    let (what, args) = ("tell its version", ["--version".into()]);
    // With a network of its own, and with the host's.
    git.run(what, Protocols::Http, &[], &args).await?;
    let said = git.run(what, Protocols::File, &[], &args).await?;
    Ok(Some(said.trim().to_owned()))
}
