//! The configuration file: unknown keys refused, everything checked before anything starts.

mod file;
mod size;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gitlab_runner_api::{BaseUrl, short_token};
use vk_hub_proto::Secret;
use vk_hub_proto::client::Placement;

use crate::metrics::Listen;

pub use size::parse_size;

/// The daemon's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Jobs and job requests at once, over all runners.
    pub concurrent: u32,
    /// How long running jobs are waited for at shutdown.
    pub shutdown_timeout: Duration,
    /// Seconds a job may wait for a place (ADM-21).
    pub place_within_secs: u32,
    /// Where state is kept, mode 0700.
    pub state_dir: PathBuf,
    /// Where the system ID is kept.
    pub system_id_file: PathBuf,
    /// Where it is kept if that place cannot be written, where the file names none.
    pub system_id_else: Option<PathBuf>,
    /// The GitLab server, as configured.
    pub url: String,
    /// Its API.
    pub base: BaseUrl,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<Metrics>,
    /// The runners, in the file's order.
    pub runners: Vec<Runner>,
}

/// `[metrics]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Where.
    pub listen: Listen,
    /// Whether projects are named.
    pub project_labels: bool,
}

/// One runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Its name, which names its state file.
    pub name: String,
    /// Whether the file names it; else its token does (CFG-06).
    pub named: bool,
    /// Its token.
    pub token: Secret,
    /// Where the token was read, if not in the file itself.
    pub token_file: Option<PathBuf>,
    /// Certificates trusted beside the system's.
    pub tls_ca_file: Option<PathBuf>,
    /// Its certificate and key for a GitLab that wants one.
    pub tls_client: Option<(PathBuf, PathBuf)>,
    /// Where its jobs go.
    pub placement: Placement,
    /// Jobs it holds at most; 0 sets no limit of its own.
    pub limit: u32,
    /// Job requests at once.
    pub request_concurrency: u32,
    /// The pause after a 204 that was not held.
    pub check_interval: Duration,
    /// Whether that pause also follows a job.
    pub strict_check_interval: bool,
    /// Where traces are cut, in bytes.
    pub output_limit: u64,
    /// Failed requests in a row before a pause.
    pub unhealthy_requests_limit: u32,
    /// The longest such pause.
    pub unhealthy_interval: Duration,
    /// Seconds of lease asked for.
    pub lease_secs: u32,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read {what} {}", path.display())]
    Read {
        /// What it should be.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file does not parse; the text has line and column.
    #[error("{}: {why}", path.display())]
    Parse {
        /// Which.
        path: PathBuf,
        /// What, and where.
        why: String,
    },
    /// A value makes no sense.
    #[error("{}: {key}: {why}", path.display())]
    Value {
        /// Which file.
        path: PathBuf,
        /// Which key.
        key: String,
        /// What is wrong, and what it must be.
        why: String,
    },
}

/// What is odd but usable.
pub type Warnings = Vec<String>;

impl Config {
    /// Reads and checks the file, and the token files it names.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(path: &Path) -> Result<(Config, Warnings), ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            what: "the configuration",
            path: path.to_owned(),
            source,
        })?;
        file::parse(&text, path)
    }

    /// The configuration with one runner's token as it is now. A runner that goes by its token gets
    /// a new name, and with that an empty state file (STATE-10).
    #[must_use]
    pub fn with_token(&self, index: usize, token: Secret) -> Config {
        let mut config = self.clone();
        if let Some(runner) = config.runners.get_mut(index) {
            if !runner.named {
                runner.name = default_name(&token);
            }
            runner.token = token;
        }
        config
    }

    /// A runner's state file.
    #[must_use]
    pub fn state_file(&self, runner: &Runner) -> PathBuf {
        self.state_dir.join(format!("{}.json", runner.name))
    }

    /// The directory of the enrolment.
    #[must_use]
    pub fn hub_dir(&self) -> PathBuf {
        self.state_dir.join("hub")
    }
}

/// The token that a file holds.
///
/// # Errors
/// The file cannot be read, or holds no token.
pub fn read_token(path: &Path) -> Result<Secret, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        what: "the token file",
        path: path.to_owned(),
        source,
    })?;
    let token = Secret::from(text.trim());
    match is_token(&token) {
        true => Ok(token),
        false => Err(ConfigError::Value {
            path: path.to_owned(),
            key: "token".to_owned(),
            why: NO_TOKEN.to_owned(),
        }),
    }
}

const NO_TOKEN: &str = "the token is empty or has characters no token has";

fn is_token(token: &Secret) -> bool {
    !token.is_empty() && token.expose().bytes().all(|byte| byte.is_ascii_graphic())
}

/// A runner's name where the file gives none: its token's short form (CFG-06).
fn default_name(token: &Secret) -> String {
    short_token(token.expose()).to_owned()
}

/// Whether a name may name a file (CFG-13).
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= 128 && !name.starts_with('.') && name.bytes().all(allowed)
}
