//! `hub.toml`: every key optional, unknown keys refused.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use vk_hub_core::{Approve, Settings};

use crate::http::Caps;

mod registries;

pub use registries::RegistryConfig;
pub(crate) use registries::is_repository;

/// The hub's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The listener for nodes, daemons and clients.
    pub addr: SocketAddr,
    /// Certificate chain and key; the data directory's where not set.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Where everything is kept, mode 0700.
    pub data_dir: PathBuf,
    /// What the fleet core is opened with.
    pub settings: Settings,
    /// How many connections there may be at once.
    pub caps: Caps,
    /// Registries that jobs get tokens of their own for.
    pub registries: Vec<RegistryConfig>,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file does not parse: the message has line and column.
    #[error("{}: {why}", path.display())]
    Parse {
        /// Which.
        path: PathBuf,
        /// What, and where.
        why: String,
    },
    /// A value is out of range.
    #[error("{}: {key} is {value}, it must be {must}", path.display())]
    Range {
        /// Which file.
        path: PathBuf,
        /// Which key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        must: &'static str,
    },
    /// A registry cannot be used.
    #[error("{place}.{key}: {why}")]
    Registry {
        /// The file, and which of its registries.
        place: String,
        /// Which key.
        key: &'static str,
        /// What is wrong, and what to do.
        why: String,
    },
    /// No data directory is named and there is no home to put one in.
    #[error("data_dir is not set and neither XDG_DATA_HOME nor HOME is: set data_dir in hub.toml")]
    NoDataDir,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "default_addr")]
    addr: SocketAddr,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    #[serde(default = "default_lost")]
    job_lost_after_secs: Seconds,
    #[serde(default = "default_history")]
    job_history: u64,
    #[serde(default)]
    gitlab: GitLab,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    registries: Vec<registries::RegistryTable>,
}

/// API-68
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    unfinished_jobs: Option<u64>,
    client_connections: Option<u64>,
    node_sessions: Option<u64>,
    unauthenticated: Option<u64>,
}

/// A limit is at least 1 and at most this.
const LARGEST_LIMIT: u64 = 1_000_000;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GitLab {
    #[serde(default)]
    approve: ApproveWord,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ApproveWord {
    All,
    #[default]
    Ask,
}

/// Seconds as a number, or a duration such as `"5m"` (CFG-17).
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "toml::Value")]
struct Seconds(u64);

impl TryFrom<toml::Value> for Seconds {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Seconds, String> {
        match value {
            toml::Value::Integer(secs) => u64::try_from(secs)
                .map(Seconds)
                .map_err(|_| "a duration is not negative".into()),
            toml::Value::String(text) => parse_duration(&text).map(|d| Seconds(d.as_secs())),
            _ => Err("a duration is a number of seconds or a text such as \"5m\"".into()),
        }
    }
}

/// Reads `90s`, `5m`, `1h`, `7d`, or a bare number of seconds.
///
/// # Errors
/// It is none of these.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: write it as 90s, 5m, 1h or 7d");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(unit)
        .map(Duration::from_secs)
        .ok_or_else(wrong)
}

fn default_addr() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8443))
}

const fn default_lost() -> Seconds {
    Seconds(300)
}

const fn default_history() -> u64 {
    10_000
}

impl Config {
    /// Reads the file; with none, every key has its default.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(path: Option<&Path>) -> Result<Config, ConfigError> {
        let Some(path) = path else {
            return Config::parse("", Path::new("hub.toml"));
        };
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Config::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| ConfigError::Parse {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
        let range = |key, value: String, must| ConfigError::Range {
            path: path.to_owned(),
            key,
            value,
            must,
        };
        let lost = file.job_lost_after_secs.0;
        if !(1..=86_400).contains(&lost) {
            return Err(range(
                "job_lost_after_secs",
                lost.to_string(),
                "1 to 86400 seconds",
            ));
        }
        if !(1..=1_000_000).contains(&file.job_history) {
            return Err(range(
                "job_history",
                file.job_history.to_string(),
                "1 to 1000000",
            ));
        }
        let limit = |key, value: Option<u64>, usual: usize| match value {
            None => Ok(usual),
            Some(value) if (1..=LARGEST_LIMIT).contains(&value) => {
                Ok(usize::try_from(value).unwrap_or(usize::MAX))
            }
            Some(value) => Err(range(key, value.to_string(), "1 to 1000000")),
        };
        let (limits, usual) = (file.limits, (Caps::default(), Settings::default()));
        let caps = Caps {
            clients: limit(
                "limits.client_connections",
                limits.client_connections,
                usual.0.clients,
            )?,
            nodes: limit("limits.node_sessions", limits.node_sessions, usual.0.nodes)?,
            strangers: limit(
                "limits.unauthenticated",
                limits.unauthenticated,
                usual.0.strangers,
            )?,
        };
        // Relative paths are taken from the file's directory.
        let base = path.parent().unwrap_or(Path::new("."));
        let tls = match (file.tls_cert, file.tls_key) {
            (Some(cert), Some(key)) => Some((base.join(cert), base.join(key))),
            (None, None) => None,
            _ => {
                return Err(range(
                    "tls_cert",
                    "set alone".into(),
                    "set together with tls_key",
                ));
            }
        };
        let data_dir = match file.data_dir {
            Some(data_dir) => base.join(data_dir),
            None => default_data_dir()?,
        };
        let registries = registries::registries(file.registries, path)?;
        let settings = Settings {
            registries: registries.iter().map(RegistryConfig::rule).collect(),
            approve: match file.gitlab.approve {
                ApproveWord::All => Approve::All,
                ApproveWord::Ask => Approve::Ask,
            },
            job_lost_after: Duration::from_secs(lost),
            job_history: usize::try_from(file.job_history).unwrap_or(usize::MAX),
            unfinished_jobs: limit(
                "limits.unfinished_jobs",
                limits.unfinished_jobs,
                usual.1.unfinished_jobs,
            )?,
            ..usual.1
        };
        Ok(Config {
            addr: file.addr,
            tls,
            data_dir,
            settings,
            caps,
            registries,
        })
    }

    /// The admin socket.
    #[must_use]
    pub fn admin_socket(&self) -> PathBuf {
        self.data_dir.join("admin.sock")
    }
}

fn default_data_dir() -> Result<PathBuf, ConfigError> {
    if let Some(data) = std::env::var_os("XDG_DATA_HOME").filter(|value| !value.is_empty()) {
        return Ok(PathBuf::from(data).join("vk-hub"));
    }
    let home = std::env::var_os("HOME").filter(|value| !value.is_empty());
    home.map(|home| PathBuf::from(home).join(".local/share/vk-hub"))
        .ok_or(ConfigError::NoDataDir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("/etc/vk-hub/hub.toml"))
    }

    /// CFG-10, CFG-17
    #[test]
    fn durations_are_seconds_or_text_and_have_a_range() {
        let lost = |text: &str| parse(text).unwrap().settings.job_lost_after.as_secs();
        assert_eq!(lost("data_dir = '/d'"), 300);
        assert_eq!(lost("data_dir = '/d'\njob_lost_after_secs = 60"), 60);
        assert_eq!(lost("data_dir = '/d'\njob_lost_after_secs = '5m'"), 300);
        for bad in ["0", "86401", "-1", "'5 minutes'", "true"] {
            let error = parse(&format!("data_dir = '/d'\njob_lost_after_secs = {bad}"));
            assert!(error.unwrap_err().to_string().contains("hub.toml"), "{bad}");
        }
    }

    #[test]
    fn unknown_keys_are_refused_with_their_line() {
        let error = parse("data_dir = '/d'\nadress = '127.0.0.1:1'")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("adress") && error.contains("line 2"),
            "{error}"
        );
    }

    #[test]
    fn approvals_are_asked_for_unless_the_operator_says_all() {
        let approve = |text: &str| parse(text).unwrap().settings.approve;
        assert_eq!(approve("data_dir = '/d'"), Approve::Ask);
        assert_eq!(
            approve("data_dir = '/d'\n[gitlab]\napprove = 'all'"),
            Approve::All
        );
        assert!(parse("data_dir = '/d'\n[gitlab]\napprove = 'some'").is_err());
    }

    /// API-68
    #[test]
    fn limits_are_settings_with_the_contracts_defaults() {
        let config = parse("data_dir = '/d'").unwrap();
        let usual = (16_384, 4096, 20_000, 256);
        let limits = |config: &Config| {
            let Caps {
                clients,
                nodes,
                strangers,
            } = config.caps;
            (config.settings.unfinished_jobs, clients, nodes, strangers)
        };
        assert_eq!(limits(&config), usual);
        let set = "[limits]\nunfinished_jobs = 1\nclient_connections = 2\nnode_sessions = 3\n\
                   unauthenticated = 4";
        let config = parse(&format!("data_dir = '/d'\n{set}")).unwrap();
        assert_eq!(limits(&config), (1, 2, 3, 4));
        for bad in [
            "node_sessions = 0",
            "unauthenticated = 1000001",
            "sessions = 1",
        ] {
            let error = parse(&format!("data_dir = '/d'\n[limits]\n{bad}")).unwrap_err();
            let key = bad.split(' ').next().unwrap();
            assert!(error.to_string().contains(key), "{error}");
        }
    }

    #[test]
    fn relative_paths_are_taken_from_the_files_directory() {
        let config = parse("data_dir = 'data'\ntls_cert = 'c'\ntls_key = 'k'").unwrap();
        assert_eq!(config.data_dir, Path::new("/etc/vk-hub/data"));
        assert_eq!(config.tls.unwrap().0, Path::new("/etc/vk-hub/c"));
        assert!(parse("data_dir = '/d'\ntls_cert = 'c'").is_err());
    }
}
