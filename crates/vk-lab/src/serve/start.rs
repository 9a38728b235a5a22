//! Start and end of a stand-in.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};

use super::lab::Lab;
use super::projects::{Git, GitError};
use super::variables::VariablesError;
use super::{admin, http, variables};
use crate::gitlab::Gitlab;

/// How often silent jobs are looked for.
const SWEEP: Duration = Duration::from_secs(30);

/// What to serve, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the API and git are served.
    pub addr: SocketAddr,
    /// The address as clients see it; `http://<addr>` when left out.
    pub url: Option<String>,
    /// Projects: path and repository.
    pub projects: Vec<(String, PathBuf)>,
    /// File of project variables.
    pub variables: Option<PathBuf>,
    /// Where the runner's token is written.
    pub token_file: PathBuf,
    /// Private directory; a temporary one when left out.
    pub state: Option<PathBuf>,
    /// The admin socket; `admin.sock` in the private directory when left out.
    pub admin: Option<PathBuf>,
    /// The runner's tags.
    pub tags: Vec<String>,
    /// How long a job request is held, in nanoseconds.
    pub long_poll_ns: u64,
    /// Directories beside the projects in which the file of variables must not lie.
    pub outside: Vec<PathBuf>,
}

/// A stand-in that serves.
#[derive(Debug)]
pub(crate) struct Served {
    /// Its mind.
    pub(crate) lab: Arc<Lab>,
    /// Its address, as clients see it.
    pub(crate) url: String,
    addr: SocketAddr,
    admin: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl Served {
    /// Ends it; what it has seen can still be looked at.
    pub(crate) fn stop(&self) {
        self.lab.stop();
        // One that is gone already is what was wanted.
        let _ = fs::remove_file(&self.admin);
    }
}

/// Why it cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file or socket.
    #[error("cannot {what} {}: {source}", .path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The address.
    #[error("cannot listen on {addr}: {source}; choose another --addr")]
    Listen {
        /// Which.
        addr: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The variables.
    #[error("--variables: {0}")]
    Variables(#[from] VariablesError),
    /// A repository.
    #[error("--project: {0}")]
    Git(#[from] GitError),
    /// Two projects under one path.
    #[error("--project: {0:?} is given twice; write GROUP/NAME=DIR")]
    Twice(String),
    /// The runtime or a signal.
    #[error("cannot start: {0}")]
    Start(#[source] std::io::Error),
}

impl ServeError {
    /// Whether what was given is wrong.
    pub(crate) fn is_of_input(&self) -> bool {
        matches!(self, Self::Variables(_) | Self::Twice(_))
    }
}

fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ServeError {
    let path = path.to_owned();
    move |source| ServeError::File { what, path, source }
}

/// Serves until SIGTERM or SIGINT. How many promises were broken.
///
/// Prints one JSON line when it serves, `{"event":"serving",…}`, and one at its end,
/// `{"event":"ended","broken":[…]}`.
///
/// # Errors
///
/// Why it could not start.
pub fn serve(options: &Options) -> Result<usize, ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(ServeError::Start)?;
    let result = runtime.block_on(run(options));
    // What still runs is held calls of clients; they are not worth waiting for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn run(options: &Options) -> Result<usize, ServeError> {
    http::raise_descriptors();
    let served = open(options).await?;
    say(
        &json!({"event": "serving", "url": served.url, "addr": served.addr.to_string(),
                "admin": served.admin, "token_file": options.token_file}),
    );
    until_signal().await?;
    served.stop();
    let look = |gitlab: &Gitlab, _| (gitlab.broken(), gitlab.ledger.left_out);
    let (broken, left_out) = served.lab.look(look);
    say(&json!({"event": "ended", "broken": broken, "left_out": left_out}));
    Ok(broken.len())
}

/// Begins to serve.
pub(crate) async fn open(options: &Options) -> Result<Served, ServeError> {
    let (state, temporary) = private_dir(options.state.as_deref())?;
    let dirs = real_dirs(&options.projects)?;
    let given = match &options.variables {
        Some(path) => {
            let mut outside = dirs.clone();
            outside.extend(options.outside.iter().cloned());
            variables::read(path, &outside)?
        }
        None => Default::default(),
    };
    let listener = TcpListener::bind(options.addr)
        .await
        .map_err(|source| ServeError::Listen {
            addr: options.addr,
            source,
        })?;
    let addr = listener.local_addr().map_err(ServeError::Start)?;
    let url = options
        .url
        .clone()
        .unwrap_or_else(|| format!("http://{addr}"));
    let mut gitlab = Gitlab::new(&url, given, options.tags.clone());
    gitlab.settings.long_poll_ns = options.long_poll_ns;
    let git = Git::new(&state).map_err(file("write git's configuration in", &state))?;
    add_projects(&mut gitlab, &git, &state, &options.projects, &dirs).await?;
    if let Some(runner) = gitlab.runner() {
        write_private(&options.token_file, runner.token.expose())?;
    }
    let admin_path = options
        .admin
        .clone()
        .unwrap_or_else(|| state.join("admin.sock"));
    let admin_socket = bind_private(&admin_path)?;
    let lab = Arc::new(Lab::new(gitlab, git, state));
    tokio::spawn(http::serve(Arc::clone(&lab), listener));
    tokio::spawn(admin::serve(Arc::clone(&lab), admin_socket));
    tokio::spawn(sweep(Arc::clone(&lab)));
    Ok(Served {
        lab,
        url,
        addr,
        admin: admin_path,
        _temporary: temporary,
    })
}

async fn sweep(lab: Arc<Lab>) {
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        sweep.tick().await;
        lab.with(Gitlab::reap);
    }
}

async fn until_signal() -> Result<(), ServeError> {
    let mut term = signal(SignalKind::terminate()).map_err(ServeError::Start)?;
    let mut int = signal(SignalKind::interrupt()).map_err(ServeError::Start)?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

/// One line on the standard output; a closed one ends nothing.
fn say(value: &serde_json::Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{value}").and_then(|()| out.flush());
}

/// The private directory, and what removes it at the end where it is a temporary one.
fn private_dir(given: Option<&Path>) -> Result<(PathBuf, Option<tempfile::TempDir>), ServeError> {
    let (path, temporary) = match given {
        Some(path) => (path.to_owned(), None),
        None => {
            let made = tempfile::Builder::new().prefix("vk-lab-").tempdir();
            let made = made.map_err(file("make a directory in", &std::env::temp_dir()))?;
            (made.path().to_owned(), Some(made))
        }
    };
    for part in [path.clone(), path.join("projects"), path.join("artifacts")] {
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(&part)
            .map_err(file("create", &part))?;
    }
    let path = path.canonicalize().map_err(file("find", &path))?;
    Ok((path, temporary))
}

fn real_dirs(projects: &[(String, PathBuf)]) -> Result<Vec<PathBuf>, ServeError> {
    let real = projects.iter();
    real.map(|(_, dir)| dir.canonicalize().map_err(file("find the project", dir)))
        .collect()
}

async fn add_projects(
    gitlab: &mut Gitlab,
    git: &Git,
    state: &Path,
    projects: &[(String, PathBuf)],
    dirs: &[PathBuf],
) -> Result<(), ServeError> {
    for ((path, _), dir) in projects.iter().zip(dirs) {
        if gitlab.project(Some(path)).is_some() {
            return Err(ServeError::Twice(path.clone()));
        }
        let name = format!("{}.git", crate::gitlab::token::random_text());
        let bare = state.join("projects").join(name);
        git.copy(dir, &bare).await?;
        gitlab.add_project(path, bare, dir.clone());
    }
    Ok(())
}

/// Writes a secret so that only its owner can ever read it: beside it first, then in its place.
fn write_private(path: &Path, secret: &str) -> Result<(), ServeError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let _ = fs::remove_file(&beside);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut out = options.open(&beside).map_err(file("create", &beside))?;
    writeln!(out, "{secret}").map_err(file("write", &beside))?;
    fs::rename(&beside, path).map_err(file("write", path))
}

/// Listens on a socket that only its owner can reach. A stale one is taken over, a live one not.
fn bind_private(path: &Path) -> Result<UnixListener, ServeError> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        let source = std::io::ErrorKind::AddrInUse.into();
        return Err(ServeError::File {
            what: "listen on",
            path: path.to_owned(),
            source,
        });
    }
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path).map_err(file("listen on", path))?;
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(path, mode).map_err(file("protect", path))?;
    Ok(listener)
}
