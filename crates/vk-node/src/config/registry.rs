//! `[registry]`: where the node keeps jobs' caches, and how registries are spoken to.

use std::path::PathBuf;

use serde::Deserialize;
use vk_oci::Reference;

/// The node's registry (CACHE-01).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    /// Its host and port and a path in it: `host[:port][/path]`.
    pub repo: String,
    /// Certificates of authorities that speak for it beside the host's, PEM.
    pub ca_file: Option<PathBuf>,
    /// Who the node is there, and the file with its password.
    pub login: Option<(String, PathBuf)>,
    /// Whether jobs have caches by their own tokens alone (`guest_credential = "job"`).
    pub job_token_only: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RegistryTable {
    repo: Option<String>,
    ca_file: Option<PathBuf>,
    username: Option<String>,
    password_file: Option<PathBuf>,
    guest_credential: Option<String>,
    pub(super) insecure: Vec<String>,
}

impl Registry {
    /// Host and port.
    #[must_use]
    pub fn host(&self) -> &str {
        self.repo.split('/').next().unwrap_or_default()
    }

    /// What the hub knows it by: scheme, host and port (REG-22); `insecure` names registries that are
    /// spoken to in plain HTTP.
    #[must_use]
    pub fn base_url(&self, insecure: &[String]) -> Option<String> {
        vk_oci::registry_url(self.host(), insecure)
    }
}

/// The registry that a file names, if it names one; else which key is wrong, and what to do.
pub(super) fn registry(
    table: &RegistryTable,
    absolute: impl Fn(PathBuf) -> PathBuf,
) -> Result<Option<Registry>, (&'static str, String)> {
    let wrong = |key, must: &str| Err((key, must.to_owned()));
    let job_token_only = match table.guest_credential.as_deref() {
        None | Some("node") => false,
        Some("job") => true,
        Some(other) => {
            let must = format!("{other:?} is no choice: it is \"node\" or \"job\"");
            return Err(("registry.guest_credential", must));
        }
    };
    let login = match (&table.username, &table.password_file) {
        (Some(username), Some(file)) => Some((username.clone(), absolute(file.clone()))),
        (None, None) => None,
        (Some(_), None) => {
            let must = "a name goes with a password: set password_file, too";
            return wrong("registry.username", must);
        }
        (None, Some(_)) => {
            let must = "a password goes with a name: set username, too";
            return wrong("registry.password_file", must);
        }
    };
    let Some(repo) = &table.repo else {
        if login.is_some() || table.ca_file.is_some() || job_token_only {
            let must = "the registry has no repo: set it to host[:port]/path, where caches go";
            return wrong("registry", must);
        }
        return Ok(None);
    };
    let repo = repo.trim_end_matches('/');
    let inside = format!("{repo}/x");
    let reference = format!("{inside}:x").parse::<Reference>();
    let is_whole = match &reference {
        Ok(reference) => reference.name() == inside,
        Err(_) => false,
    };
    if !is_whole {
        let must = format!(
            "{repo:?} is no place in a registry: write host[:port]/path in lower case, without \
             https:// before it; a host has a dot or a port, or is localhost"
        );
        return Err(("registry.repo", must));
    }
    Ok(Some(Registry {
        repo: repo.to_owned(),
        ca_file: table.ca_file.clone().map(absolute),
        login,
        job_token_only,
    }))
}
