//! `[[registries]]`: registries that jobs get tokens of their own for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use vk_hub_core::Registry;
use vk_oci::Reference;

use super::ConfigError;

/// Registries at most.
const REGISTRIES: usize = 16;
/// Repositories of `read` at most: each stands in every token.
const READ: usize = 64;
/// Bytes of `service` and `issuer` at most.
const WORD: usize = 255;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryConfig {
    /// File and table, for whoever is told what is wrong with it.
    pub place: String,
    /// As nodes report theirs (REG-05).
    pub url: String,
    /// What the registry calls itself: `auth.token.service` of its configuration.
    pub service: String,
    /// Who signs: its `auth.token.issuer`.
    pub issuer: String,
    /// The key that signs, PEM.
    pub key_file: PathBuf,
    /// The key's certificate, and those behind it, PEM: of its `auth.token.rootcertbundle`.
    pub certificate_file: PathBuf,
    /// What the repositories of caches lie below.
    pub cache_prefix: String,
    /// Repositories that every job may read.
    pub read: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegistryTable {
    url: String,
    service: String,
    #[serde(default = "default_issuer")]
    issuer: String,
    key_file: PathBuf,
    certificate_file: PathBuf,
    #[serde(default = "default_prefix")]
    cache_prefix: String,
    #[serde(default)]
    read: Vec<String>,
}

fn default_issuer() -> String {
    "vk-hub".to_owned()
}

fn default_prefix() -> String {
    "ci-cache".to_owned()
}

impl RegistryConfig {
    /// A key of it that cannot be used.
    pub(crate) fn error(&self, key: &'static str, why: impl Into<String>) -> ConfigError {
        ConfigError::Registry {
            place: self.place.clone(),
            key,
            why: why.into(),
        }
    }

    /// What the fleet's core is to know of it.
    #[must_use]
    pub fn rule(&self) -> Registry {
        Registry {
            url: self.url.clone(),
            cache_prefix: self.cache_prefix.clone(),
            read: self.read.clone(),
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        if let Err(why) = check_url(&self.url) {
            return Err(self.error("url", why));
        }
        for (key, word) in [("service", &self.service), ("issuer", &self.issuer)] {
            let is_plain = word.chars().all(|c| !c.is_control());
            if word.is_empty() || word.len() > WORD || !is_plain {
                let why = "it is 1 to 255 bytes in one line: write what the registry has as \
                           auth.token.service and auth.token.issuer";
                return Err(self.error(key, why));
            }
        }
        if !is_repository(&self.cache_prefix) {
            return Err(self.error("cache_prefix", no_repository(&self.cache_prefix)));
        }
        if self.read.len() > READ {
            let why = format!("it has {} repositories, {READ} are taken", self.read.len());
            return Err(self.error("read", why));
        }
        for name in &self.read {
            if !is_repository(name) {
                return Err(self.error("read", no_repository(name)));
            }
            let below = name.strip_prefix(&self.cache_prefix);
            if below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
                let why = format!(
                    "{name:?} lies where caches do: every job could read those of protected refs; \
                     leave it out, or set another cache_prefix"
                );
                return Err(self.error("read", why));
            }
        }
        Ok(())
    }
}

/// What a file says of registries, its own path given for messages and relative paths.
pub(super) fn registries(
    tables: Vec<RegistryTable>,
    path: &Path,
) -> Result<Vec<RegistryConfig>, ConfigError> {
    let base = path.parent().unwrap_or(Path::new("."));
    let mut urls = BTreeSet::new();
    let mut all = Vec::new();
    for (number, table) in tables.into_iter().enumerate() {
        let one = RegistryConfig {
            place: format!("{}: registries[{number}]", path.display()),
            url: table.url,
            service: table.service,
            issuer: table.issuer,
            key_file: base.join(table.key_file),
            certificate_file: base.join(table.certificate_file),
            cache_prefix: table.cache_prefix,
            read: table.read,
        };
        one.check()?;
        if number >= REGISTRIES {
            return Err(one.error("url", format!("{REGISTRIES} registries are taken at most")));
        }
        if !urls.insert(one.url.clone()) {
            let why = format!("{} stands twice: leave one of them out", one.url);
            return Err(one.error("url", why));
        }
        all.push(one);
    }
    Ok(all)
}

/// The one spelling that nodes report (REG-22).
fn check_url(url: &str) -> Result<(), String> {
    let remedy = "write it as nodes report it: https://host[:port], nothing after it";
    let Some((scheme, host)) = url.split_once("://") else {
        return Err(format!("{url:?} is no URL: {remedy}"));
    };
    if !matches!(scheme, "https" | "http") {
        return Err(format!("{url:?} is neither https nor http: {remedy}"));
    }
    let is_bare = !host.is_empty() && !host.contains(['/', '?', '#', '@', '\\']);
    match vk_oci::registry_url(host, &[]).filter(|_| is_bare) {
        Some(reported) if reported == url => Ok(()),
        Some(reported) if scheme == "http" && reported.starts_with("https:") => Err(format!(
            "{url:?}: a node sends no token over plain HTTP but to its own loopback: give the \
             registry a certificate, and write {reported}"
        )),
        Some(reported) => Err(format!(
            "{url:?} is reported by nodes as {reported}: write that"
        )),
        None => Err(format!("{url:?} is no registry's URL: {remedy}")),
    }
}

/// Whether a registry takes it as a repository's name.
pub(crate) fn is_repository(name: &str) -> bool {
    let reference = format!("localhost/{name}:x").parse::<Reference>();
    reference.is_ok_and(|reference| reference.repository() == name)
}

fn no_repository(name: &str) -> String {
    format!(
        "{name:?} is no repository's name, which is a-z 0-9 separated by . _ - or /: write it from \
         the registry's root, without host, tag, * or a slash at its end; a token names each \
         repository, so there are no patterns"
    )
}

#[cfg(test)]
mod tests;
