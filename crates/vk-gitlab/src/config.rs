//! The configuration file: unknown keys refused, everything checked before anything starts.

mod document;
mod file;
mod schema;
mod size;
mod token;
mod trusted;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gitlab_runner_api::{BaseUrl, short_token};
use vk_hub_proto::Secret;
use vk_hub_proto::client::Placement;

use crate::metrics::Listen;

pub use size::parse_size;
use trusted::Secrecy;

/// The largest configuration: thousands of runners.
const LARGEST: u64 = 1 << 20;
/// The largest token file.
const LARGEST_TOKEN_FILE: u64 = 4096;

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
    /// Whether a platform mounts secrets read-only, readable by everybody in the container or owned by
    /// a user that its namespace does not have.
    pub mounted_secrets: bool,
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

/// A configuration that cannot be used; the text says what to do, and repeats no token.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read or trusted; the text begins with its path.
    #[error("{why}")]
    File {
        /// Which, why, and what to do.
        why: String,
    },
    /// The file does not parse.
    #[error("{}:{line}: {why}", path.display())]
    Parse {
        /// Which.
        path: PathBuf,
        /// Where.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// A value makes no sense.
    #[error("{}:{line}: {key}: {why}", path.display())]
    Value {
        /// Which file.
        path: PathBuf,
        /// Where the key stands, or the table that lacks it.
        line: usize,
        /// Which key, with its tables.
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
        let read = trusted::read(path, LARGEST, Secrecy::Config, false);
        let read = read.map_err(|why| ConfigError::File {
            why: format!("the configuration {why}, or name another with --config"),
        })?;
        let text = String::from_utf8(read.bytes).map_err(|error| {
            let good = error.utf8_error().valid_up_to();
            let before = error.as_bytes().get(..good).unwrap_or_default();
            ConfigError::Parse {
                path: path.to_owned(),
                line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
                why: "here stands what is not UTF-8: write it again".to_owned(),
            }
        })?;
        let (config, mut warnings) = file::parse(&text, path)?;
        let holds_token = config.runners.iter().any(|one| one.token_file.is_none());
        let tells = holds_token && !config.mounted_secrets;
        if let Some(mode) = read.readable.filter(|_| tells) {
            let path = path.display();
            warnings.push(format!(
                "{path} holds a token and can be read by others (mode {mode:o}): chmod 0600 {path}"
            ));
        }
        Ok((config, warnings))
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

/// The token that a file holds; `mounted` is [`Config::mounted_secrets`].
///
/// # Errors
/// The file cannot be read or trusted, or holds no runner's token.
pub fn read_token(path: &Path, mounted: bool) -> Result<Secret, ConfigError> {
    let read = token_file(path, mounted).map_err(|why| ConfigError::File { why })?;
    Ok(read.0)
}

/// The token that a file holds, and the file's mode where others may read it.
fn token_file(path: &Path, mounted: bool) -> Result<(Secret, Option<u32>), String> {
    let read = trusted::read(path, LARGEST_TOKEN_FILE, Secrecy::Open, mounted)?;
    let shown = path.display();
    let text = std::str::from_utf8(&read.bytes)
        .map_err(|_| format!("{shown}: the token is not UTF-8: write the file again"))?;
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    token::check(text).map_err(|why| format!("{shown}: {why}"))?;
    Ok((Secret::from(text), read.readable))
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
