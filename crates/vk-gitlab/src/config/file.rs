//! What the file says, checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gitlab_runner_api::{BaseUrl, BaseUrlError, ClientError};
use vk_hub_proto::client::{Envelope, Placement};
use vk_hub_proto::{Name, Secret, limit};

use super::document::{Document, Table};
use super::schema::{ENVELOPE, GITLAB, METRICS, RUNNER};
use super::trusted::{self, Secrecy};
use super::{
    Config, ConfigError, Metrics, Runner, Warnings, default_name, is_name, token, token_file,
};
use crate::metrics::ListenError;
use crate::operator;

/// Seconds in a day and in a week.
const DAY: u32 = 86_400;
const WEEK: u32 = 7 * DAY;
/// Jobs at once of a daemon: more than one process can hold connections for.
const MOST_JOBS: u32 = 10_000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The largest envelope's memory and disk: 1024T, more than any host has.
const LARGEST: u64 = 1 << 50;
/// The largest `output_limit`: GitLab drops a job at 100 MiB (CFG-18).
const OUTPUT_LIMIT: u64 = 63 * MIB;
/// The largest certificate or key file: a bundle of all public CAs has less than 1 MiB.
const LARGEST_PEM: u64 = 8 * MIB;

/// The system ID's file (GL-67).
const SYSTEM_ID: &str = ".vk-gitlab-system-id";
/// How long a job may wait for a place (ADM-21).
const PLACE_WITHIN_SECS: u32 = 300;

/// Parses and checks.
pub(super) fn parse(text: &str, path: &Path) -> Result<(Config, Warnings), ConfigError> {
    let document = Document::new(text, path);
    let entries = document.read()?;
    let file = document.root(entries.get_ref())?;
    let concurrent = file.number("concurrent", 1..=MOST_JOBS, 1)?;
    let check_interval = file.number("check_interval", 1..=3600, 3)?;
    let shutdown_timeout = file.number("shutdown_timeout", 0..=WEEK, 30)?;
    let place_within_secs = file.number(
        "place_within_secs",
        10..=limit::PLACE_WITHIN_SECS,
        PLACE_WITHIN_SECS,
    )?;
    let (url, base) = gitlab(&file)?;
    let state_dir = file.path("state_dir")?;
    let state_dir = state_dir.unwrap_or_else(|| PathBuf::from("/var/lib/vk-gitlab"));
    let system_id_file = file.path("system_id_file")?;
    let system_id_else = match system_id_file {
        Some(_) => None,
        None => Some(state_dir.join(SYSTEM_ID)),
    };
    let beside = path.parent().unwrap_or(Path::new("."));
    let metrics = metrics(&file)?;
    let tables = file.tables("runners", &RUNNER)?;
    if tables.is_empty() {
        return Err(file.error("runners", "there is none: add a [[runners]] table"));
    }
    let mut warnings = Vec::new();
    let mut config = Config {
        concurrent,
        shutdown_timeout: seconds(shutdown_timeout),
        state_dir,
        system_id_else,
        system_id_file: system_id_file.unwrap_or_else(|| beside.join(SYSTEM_ID)),
        url,
        base,
        mounted_secrets: file.flag("mounted_secrets")?,
        metrics,
        place_within_secs,
        runners: Vec::new(),
    };
    for table in &tables {
        let mut readable = Vec::new();
        let mounted = config.mounted_secrets;
        let runner = runner(table, check_interval, mounted, &mut readable)?;
        if !mounted {
            warnings.append(&mut readable);
        }
        check_tls(table, &config, &runner)?;
        config.runners.push(runner);
    }
    check_distinct(&tables, &config.runners)?;
    Ok((config, warnings))
}

fn seconds(secs: u32) -> Duration {
    Duration::from_secs(secs.into())
}

fn gitlab(file: &Table<'_>) -> Result<(String, BaseUrl), ConfigError> {
    let missing = "it is missing: add a [gitlab] table with url = \"https://gitlab.example.com\"";
    let Some(table) = file.table("gitlab", &GITLAB)? else {
        return Err(file.error("gitlab", missing));
    };
    let Some(url) = table.text("url")? else {
        return Err(table.error("url", "it is missing: url = \"https://gitlab.example.com\""));
    };
    let base = url
        .parse()
        .map_err(|error: BaseUrlError| table.error("url", error.to_string()))?;
    Ok((url.to_owned(), base))
}

fn metrics(file: &Table<'_>) -> Result<Option<Metrics>, ConfigError> {
    let Some(table) = file.table("metrics", &METRICS)? else {
        return Ok(None);
    };
    let project_labels = table.flag("project_labels")?;
    let Some(listen) = table.text("listen")? else {
        let why = "it is missing: name an address, or take [metrics] away";
        return Err(table.error("listen", why));
    };
    let listen = listen
        .parse()
        .map_err(|error: ListenError| table.error("listen", error.to_string()))?;
    Ok(Some(Metrics {
        listen,
        project_labels,
    }))
}

fn runner(
    table: &Table<'_>,
    interval: u32,
    mounted: bool,
    warnings: &mut Warnings,
) -> Result<Runner, ConfigError> {
    let (token, token_file) = own_token(table, mounted, warnings)?;
    let named = table.text("name")?;
    let name = named.map_or_else(|| default_name(&token), str::to_owned);
    if token::kind(&name).is_some() {
        return Err(table.error("name", "it looks like a token: names are seen by many"));
    }
    if !is_name(&name) {
        let why = format!(
            "{:?} must be 1 to 128 of A-Z a-z 0-9 . _ - and not begin with a dot",
            name.chars().take(130).collect::<String>()
        );
        return Err(table.error("name", why));
    }
    let tls_client = match (table.path("tls_cert_file")?, table.path("tls_key_file")?) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(table.error("tls_cert_file", "set it together with tls_key_file"));
        }
        (None, Some(_)) => {
            return Err(table.error("tls_key_file", "set it together with tls_cert_file"));
        }
    };
    let output_limit = table.size("output_limit", 1024, 1..=OUTPUT_LIMIT)?;
    Ok(Runner {
        name,
        named: named.is_some(),
        token,
        token_file,
        tls_ca_file: table.path("tls_ca_file")?,
        tls_client,
        placement: placement(table)?,
        limit: table.number("limit", 0..=MOST_JOBS, 0)?,
        request_concurrency: table.number("request_concurrency", 1..=64, 1)?,
        check_interval: seconds(table.number("check_interval", 1..=3600, interval)?),
        strict_check_interval: table.flag("strict_check_interval")?,
        output_limit: output_limit.unwrap_or(limit::DEFAULT_TRACE_BYTES),
        unhealthy_requests_limit: table.number("unhealthy_requests_limit", 1..=1000, 3)?,
        unhealthy_interval: seconds(table.number("unhealthy_interval", 1..=DAY, 3600)?),
        lease_secs: table.number("lease_secs", 75..=limit::LEASE_SECS, 90)?,
    })
}

/// Exactly one of `token` and `token_file` (CFG-14).
fn own_token(
    table: &Table<'_>,
    mounted: bool,
    warnings: &mut Warnings,
) -> Result<(Secret, Option<PathBuf>), ConfigError> {
    match (table.text("token")?, table.path("token_file")?) {
        (Some(_), Some(_)) => Err(table.error("token", "set either token or token_file, not both")),
        (None, None) => Err(table.error("token_file", "it is missing: name a file, mode 0600")),
        (Some(token), None) => match token::check(token) {
            Ok(()) => Ok((Secret::from(token), None)),
            Err(why) => Err(table.error("token", why)),
        },
        (None, Some(path)) => {
            let (token, readable) =
                token_file(&path, mounted).map_err(|why| table.error("token_file", why))?;
            if let Some(mode) = readable {
                let path = path.display();
                warnings.push(format!(
                    "{path} can be read by others (mode {mode:o}): chmod 0600 {path}"
                ));
            }
            Ok((token, Some(path)))
        }
    }
}

fn placement(table: &Table<'_>) -> Result<Placement, ConfigError> {
    let name = |key: &str, text: &str| {
        text.parse::<Name>()
            .map_err(|error| table.error(key, error.to_string()))
    };
    let pool = match table.text("pool")? {
        Some(text) => name("pool", text)?,
        None => Name::default(),
    };
    let labels = table.texts("labels")?.into_iter();
    let labels: Vec<Name> = labels
        .map(|text| name("labels", text))
        .collect::<Result<_, _>>()?;
    let distinct: BTreeSet<&Name> = labels.iter().collect();
    if distinct.len() != labels.len() {
        return Err(table.error("labels", "a label stands there twice: keep one"));
    }
    let placement = Placement {
        pool,
        labels,
        envelope: envelope(table)?,
    };
    placement
        .validate()
        .map_err(|invalid| table.error("labels", invalid.to_string()))?;
    Ok(placement)
}

fn envelope(table: &Table<'_>) -> Result<Envelope, ConfigError> {
    let (mem, cpus, disk) = match table.table("envelope", &ENVELOPE)? {
        None => (None, 2, None),
        Some(envelope) => (
            envelope.size("mem", 1, MIB..=LARGEST)?,
            envelope.number("cpus", 1..=4096, 2)?,
            envelope.size("disk", 1, MIB..=LARGEST)?,
        ),
    };
    Ok(Envelope {
        mem_mib: mem.unwrap_or(4 * GIB) >> 20,
        cpus,
        disk_bytes: disk.unwrap_or(16 * GIB),
    })
}

/// Whether the files of TLS can be used.
fn check_tls(table: &Table<'_>, config: &Config, runner: &Runner) -> Result<(), ConfigError> {
    let (certificate, key) = runner.tls_client.clone().unzip();
    let files = [
        ("tls_ca_file", runner.tls_ca_file.clone(), Secrecy::Open),
        ("tls_cert_file", certificate, Secrecy::Open),
        ("tls_key_file", key, Secrecy::Key),
    ];
    let mut keys = BTreeMap::new();
    for (name, path, secrecy) in files {
        let Some(path) = path else {
            continue;
        };
        let read = trusted::read(&path, LARGEST_PEM, secrecy, config.mounted_secrets);
        let read = read.map_err(|why| table.error(name, why))?;
        let expected: &[u8] = match secrecy {
            Secrecy::Key => b"PRIVATE KEY-----",
            Secrecy::Open | Secrecy::Config => b"-----BEGIN CERTIFICATE-----",
        };
        if !read
            .bytes
            .windows(expected.len())
            .any(|part| part == expected)
        {
            let what = if secrecy == Secrecy::Key {
                "private key"
            } else {
                "certificate"
            };
            let why = format!("{} holds no {what} in PEM", path.display());
            return Err(table.error(name, why));
        }
        keys.insert(path, name);
    }
    if keys.is_empty() {
        return Ok(());
    }
    let client = operator::client(config, runner, "r_000000000000");
    client.map(drop).map_err(|error| {
        let about = match error.downcast_ref() {
            Some(ClientError::Read { path, .. } | ClientError::Content { path, .. }) => {
                keys.get(path).copied()
            }
            _ => None,
        };
        table.error(about.unwrap_or("tls_ca_file"), format!("{error:#}"))
    })
}

/// Runners share neither a state file nor a token: GitLab would take the two for one, and give each
/// what belongs to the other.
fn check_distinct(tables: &[Table<'_>], runners: &[Runner]) -> Result<(), ConfigError> {
    let (mut names, mut files, mut tokens) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (index, (table, runner)) in tables.iter().zip(runners).enumerate() {
        if let Some(first) = runner
            .token_file
            .as_deref()
            .and_then(|path| files.insert(path, index))
        {
            let why = format!(
                "runners[{first}] goes by this file too: each runner has a token of its own"
            );
            return Err(table.error("token_file", why));
        }
        let key = if runner.token_file.is_some() {
            "token_file"
        } else {
            "token"
        };
        if let Some(first) = tokens.insert(runner.token.expose(), index) {
            let why =
                format!("runners[{first}] has the same token: each runner has one of its own");
            return Err(table.error(key, why));
        }
        if let Some(first) = names.insert(runner.name.as_str(), index) {
            let why = format!(
                "{:?} names two runners, runners[{first}] too: their state would share a file",
                runner.name
            );
            return Err(table.error("name", why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
