//! The file's own shape, and its checks.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use vk_hub_proto::client::{Envelope, Placement};
use vk_hub_proto::{Name, Secret, limit};

use super::{
    Config, ConfigError, Metrics, NO_TOKEN, Runner, Warnings, default_name, is_name, is_token,
    parse_size, read_token,
};
use crate::metrics::ListenError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "one")]
    concurrent: u32,
    check_interval: Option<u64>,
    shutdown_timeout: Option<u64>,
    system_id_file: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    place_within_secs: Option<u32>,
    gitlab: GitLab,
    metrics: Option<MetricsTable>,
    #[serde(default)]
    runners: Vec<RunnerTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GitLab {
    url: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsTable {
    listen: String,
    #[serde(default)]
    project_labels: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunnerTable {
    name: Option<String>,
    token: Option<Secret>,
    token_file: Option<PathBuf>,
    #[serde(alias = "tls-ca-file")]
    tls_ca_file: Option<PathBuf>,
    #[serde(alias = "tls-cert-file")]
    tls_cert_file: Option<PathBuf>,
    #[serde(alias = "tls-key-file")]
    tls_key_file: Option<PathBuf>,
    #[serde(default)]
    pool: Name,
    #[serde(default)]
    labels: Vec<Name>,
    #[serde(default)]
    envelope: EnvelopeTable,
    #[serde(default)]
    limit: u32,
    #[serde(default = "one")]
    request_concurrency: u32,
    check_interval: Option<u64>,
    #[serde(default)]
    strict_check_interval: bool,
    output_limit: Option<Size>,
    unhealthy_requests_limit: Option<u32>,
    unhealthy_interval: Option<u64>,
    lease_secs: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvelopeTable {
    #[serde(default = "default_mem")]
    mem: Size,
    #[serde(default = "default_cpus")]
    cpus: u32,
    #[serde(default = "default_disk")]
    disk: Size,
}

impl Default for EnvelopeTable {
    fn default() -> EnvelopeTable {
        EnvelopeTable {
            mem: default_mem(),
            cpus: default_cpus(),
            disk: default_disk(),
        }
    }
}

/// A size as it was written: a number alone has the unit of its key.
#[derive(Deserialize)]
#[serde(untagged)]
enum Size {
    Number(u64),
    Text(String),
}

impl Size {
    fn bytes(&self, unit: u64) -> Result<u64, String> {
        match self {
            Size::Number(number) => parse_size(&number.to_string(), unit),
            Size::Text(text) => parse_size(text, unit),
        }
    }
}

const fn one() -> u32 {
    1
}

fn default_mem() -> Size {
    Size::Text("4G".to_owned())
}

const fn default_cpus() -> u32 {
    2
}

fn default_disk() -> Size {
    Size::Text("16G".to_owned())
}

/// The largest `output_limit`: GitLab drops a job at 100 MiB (CFG-18).
const OUTPUT_LIMIT: u64 = 63 * 1024 * 1024;

/// The system ID's file (GL-67).
const SYSTEM_ID: &str = ".vk-gitlab-system-id";
/// How long a job may wait for a place (ADM-21).
const PLACE_WITHIN_SECS: u32 = 300;

/// Parses and checks.
pub(super) fn parse(text: &str, path: &Path) -> Result<(Config, Warnings), ConfigError> {
    let file: File = toml::from_str(text).map_err(|error| ConfigError::Parse {
        path: path.to_owned(),
        why: shown(&error),
    })?;
    let value = |key: &str, why: String| ConfigError::Value {
        path: path.to_owned(),
        key: key.to_owned(),
        why,
    };
    if file.concurrent == 0 {
        return Err(value(
            "concurrent",
            "0 would take no job at all; it must be 1 or more".into(),
        ));
    }
    if file.runners.is_empty() {
        return Err(value(
            "runners",
            "there is none: add a [[runners]] table".into(),
        ));
    }
    let base_dir = path.parent().unwrap_or(Path::new("."));
    let base = file
        .gitlab
        .url
        .parse()
        .map_err(|error: gitlab_runner_api::BaseUrlError| value("gitlab.url", error.to_string()))?;
    let place_within_secs = file.place_within_secs.unwrap_or(PLACE_WITHIN_SECS);
    if !(10..=limit::PLACE_WITHIN_SECS).contains(&place_within_secs) {
        let why = format!("it must be 10 to {}", limit::PLACE_WITHIN_SECS);
        return Err(value("place_within_secs", why));
    }
    let metrics = match &file.metrics {
        None => None,
        Some(table) => Some(Metrics {
            listen: table
                .listen
                .parse()
                .map_err(|error: ListenError| value("metrics.listen", error.to_string()))?,
            project_labels: table.project_labels,
        }),
    };
    let mut warnings = Vec::new();
    let mut runners = Vec::new();
    for (index, table) in file.runners.iter().enumerate() {
        let checking = Checking {
            path,
            base_dir,
            index,
            interval: file.check_interval,
        };
        runners.push(checking.runner(table, &mut warnings)?);
    }
    let mut names = BTreeSet::new();
    for runner in &runners {
        if !names.insert(runner.name.as_str()) {
            let why = format!(
                "{:?} names two runners: their state would share a file",
                runner.name
            );
            return Err(value("runners.name", why));
        }
    }
    let state_dir = file.state_dir.as_deref();
    let state_dir = base_dir.join(state_dir.unwrap_or(Path::new("/var/lib/vk-gitlab")));
    let system_id_else = match file.system_id_file {
        Some(_) => None,
        None => Some(state_dir.join(SYSTEM_ID)),
    };
    let system_id_file = file.system_id_file.unwrap_or_else(|| SYSTEM_ID.into());
    let config = Config {
        concurrent: file.concurrent,
        shutdown_timeout: Duration::from_secs(file.shutdown_timeout.unwrap_or(30)),
        state_dir,
        system_id_else,
        system_id_file: base_dir.join(system_id_file),
        url: file.gitlab.url,
        base,
        metrics,
        place_within_secs,
        runners,
    };
    Ok((config, warnings))
}

/// Where the error is and what it is, without the line it stands in: that may hold a token.
fn shown(error: &toml::de::Error) -> String {
    let message = error.message().to_owned();
    let text = error.to_string();
    let place = text.lines().next().filter(|line| line.contains("line"));
    match place {
        Some(place) => format!("{place}: {message}"),
        None => message,
    }
}

struct Checking<'a> {
    path: &'a Path,
    base_dir: &'a Path,
    index: usize,
    interval: Option<u64>,
}

impl Checking<'_> {
    fn value(&self, key: &str, why: impl Into<String>) -> ConfigError {
        ConfigError::Value {
            path: self.path.to_owned(),
            key: format!("runners[{}].{key}", self.index),
            why: why.into(),
        }
    }

    fn runner(&self, table: &RunnerTable, warnings: &mut Warnings) -> Result<Runner, ConfigError> {
        let token = self.token(table, warnings)?;
        let name = table.name.clone().unwrap_or_else(|| default_name(&token));
        if !is_name(&name) {
            let why = format!("{name:?} must be of A-Z a-z 0-9 . _ - and not begin with a dot");
            return Err(self.value("name", why));
        }
        let tls_client = match (&table.tls_cert_file, &table.tls_key_file) {
            (Some(cert), Some(key)) => Some((self.base_dir.join(cert), self.base_dir.join(key))),
            (None, None) => None,
            _ => return Err(self.value("tls_cert_file", "set it together with tls_key_file")),
        };
        let lease_secs = table.lease_secs.unwrap_or(90);
        if !(75..=limit::LEASE_SECS).contains(&lease_secs) {
            let why = format!(
                "{lease_secs} must be 75 to {}: it covers a job request of 60 s",
                limit::LEASE_SECS
            );
            return Err(self.value("lease_secs", why));
        }
        if !(1..=64).contains(&table.request_concurrency) {
            return Err(self.value("request_concurrency", "it must be 1 to 64"));
        }
        let seconds = |own: Option<u64>, default| Duration::from_secs(own.unwrap_or(default));
        let token_file = table.token_file.as_ref();
        Ok(Runner {
            name,
            named: table.name.is_some(),
            token,
            token_file: token_file.map(|file| self.base_dir.join(file)),
            tls_ca_file: table
                .tls_ca_file
                .as_ref()
                .map(|file| self.base_dir.join(file)),
            tls_client,
            placement: self.placement(table)?,
            limit: table.limit,
            request_concurrency: table.request_concurrency,
            check_interval: seconds(table.check_interval.or(self.interval), 3),
            strict_check_interval: table.strict_check_interval,
            output_limit: self.output_limit(table.output_limit.as_ref())?,
            unhealthy_requests_limit: table.unhealthy_requests_limit.unwrap_or(3).max(1),
            unhealthy_interval: seconds(table.unhealthy_interval, 3600),
            lease_secs,
        })
    }

    /// Exactly one of `token` and `token_file` (CFG-14).
    fn token(&self, table: &RunnerTable, warnings: &mut Warnings) -> Result<Secret, ConfigError> {
        let token = match (&table.token, &table.token_file) {
            (Some(token), None) => token.clone(),
            (None, Some(file)) => self.token_file(&self.base_dir.join(file), warnings)?,
            (Some(_), Some(_)) => {
                return Err(self.value("token", "set either token or token_file, not both"));
            }
            (None, None) => return Err(self.value("token_file", "it is missing")),
        };
        if !is_token(&token) {
            return Err(self.value("token", NO_TOKEN));
        }
        Ok(token)
    }

    fn token_file(&self, path: &Path, warnings: &mut Warnings) -> Result<Secret, ConfigError> {
        let read = |source| ConfigError::Read {
            what: "the token file",
            path: path.to_owned(),
            source,
        };
        let mode = std::fs::metadata(path).map_err(read)?.permissions().mode();
        if mode & 0o077 != 0 {
            let path = path.display();
            warnings.push(format!(
                "{path} can be read by others (mode {:o}): chmod 0600 {path}",
                mode & 0o777
            ));
        }
        read_token(path)
    }

    fn placement(&self, table: &RunnerTable) -> Result<Placement, ConfigError> {
        let distinct: BTreeSet<&Name> = table.labels.iter().collect();
        if distinct.len() != table.labels.len() {
            return Err(self.value("labels", "a label stands there twice"));
        }
        let size = |key: &str, size: &Size| {
            size.bytes(1)
                .map_err(|why| self.value(&format!("envelope.{key}"), why))
        };
        let mem_mib = size("mem", &table.envelope.mem)? >> 20;
        let disk_bytes = size("disk", &table.envelope.disk)?;
        if mem_mib == 0 || disk_bytes == 0 || table.envelope.cpus == 0 {
            let why = "mem must be 1M or more, and neither cpus nor disk 0";
            return Err(self.value("envelope", why));
        }
        let envelope = Envelope {
            mem_mib,
            cpus: table.envelope.cpus,
            disk_bytes,
        };
        let placement = Placement {
            pool: table.pool.clone(),
            labels: table.labels.clone(),
            envelope,
        };
        placement
            .validate()
            .map_err(|invalid| self.value("labels", invalid.to_string()))?;
        Ok(placement)
    }

    fn output_limit(&self, size: Option<&Size>) -> Result<u64, ConfigError> {
        let Some(size) = size else {
            return Ok(limit::DEFAULT_TRACE_BYTES);
        };
        let bytes = size
            .bytes(1024)
            .map_err(|why| self.value("output_limit", why))?;
        if bytes == 0 || bytes > OUTPUT_LIMIT {
            let why = "it must be more than 0 and at most 63M: GitLab drops a job at 100 MiB";
            return Err(self.value("output_limit", why));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
