//! Where a node's jobs keep caches, as the daemon leaves it for their processes: without secrets.

use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use vk_driver::{CacheGrant, Caches};
use vk_image::{Credential, Password};
use vk_node::config::Config;
use vk_node::job::start_file::RegistryToken;

/// Bytes of a password's file, and of one of certificates.
const FILE_MAX: u64 = 1 << 20;

/// What of the configuration is about caches.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CacheSettings {
    repo: Option<String>,
    /// The registry as the hub is told of it (REG-04).
    url: Option<String>,
    ca_file: Option<PathBuf>,
    username: Option<String>,
    password_file: Option<PathBuf>,
    insecure: bool,
    job_token_only: bool,
}

impl CacheSettings {
    pub(crate) fn of(config: &Config) -> CacheSettings {
        let Some(registry) = &config.registry else {
            return CacheSettings::default();
        };
        let (username, password_file) = registry.login.clone().unzip();
        let host = registry.host();
        CacheSettings {
            repo: Some(registry.repo.clone()),
            url: registry.base_url(&config.insecure_registries),
            ca_file: registry.ca_file.clone(),
            username,
            password_file,
            insecure: config.insecure_registries.iter().any(|one| one == host),
            job_token_only: registry.job_token_only,
        }
    }

    /// For a job that came with this token. One for another registry than this node's, as after a
    /// change of its configuration, is sent nowhere.
    pub(crate) fn caches_of(&self, token: Option<RegistryToken>) -> Caches {
        let token = token.filter(|token| {
            let is_own = self.url.as_ref() == Some(&token.url);
            if !is_own {
                tracing::warn!(
                    registry = token.url,
                    "a token of another registry is not used"
                );
            }
            is_own
        });
        let granted = token.map(|token| CacheGrant {
            username: token.username,
            token: Password::new(token.token.expose().to_owned()),
            expires_at: token.expires_at,
            repository: token.cache_repository,
        });
        Caches {
            granted,
            ..self.caches()
        }
    }

    /// With the files that the configuration names, as they are now. What cannot be read costs a job
    /// its caches, not its run.
    pub(crate) fn caches(&self) -> Caches {
        self.read().unwrap_or_else(|error| {
            tracing::warn!("no caches: {error:#}");
            Caches {
                repo: self.repo.clone(),
                unusable: Some(format!("{error:#}")),
                ..Caches::default()
            }
        })
    }

    /// # Errors
    /// A file that cannot be read.
    pub(crate) fn read(&self) -> anyhow::Result<Caches> {
        let authorities = self.ca_file.iter().map(|file| {
            let text = read(file);
            text.context("cannot read registry.ca_file")
        });
        let credential = match (&self.username, &self.password_file) {
            (Some(username), Some(file)) => {
                let bytes = read(file).context("cannot read registry.password_file")?;
                let text = String::from_utf8(bytes)
                    .map_err(|_| anyhow::anyhow!("{}: the password is no UTF-8", file.display()))?;
                Some(Credential {
                    username: username.clone(),
                    password: Password::new(text.trim_end_matches(['\n', '\r']).to_owned()),
                })
            }
            _ => None,
        };
        Ok(Caches {
            repo: self.repo.clone(),
            authorities: authorities.collect::<anyhow::Result<_>>()?,
            credential,
            insecure: self.insecure,
            job_token_only: self.job_token_only,
            ..Caches::default()
        })
    }
}

fn read(file: &PathBuf) -> anyhow::Result<Vec<u8>> {
    use std::io::Read;
    let shown = || file.display().to_string();
    let open = std::fs::File::open(file).with_context(shown)?;
    let mut bytes = Vec::new();
    open.take(FILE_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(shown)?;
    anyhow::ensure!(bytes.len() as u64 <= FILE_MAX, "{}: over 1 MiB", shown());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &std::path::Path, keys: &str) -> Config {
        let file = dir.join("config.toml");
        std::fs::write(&file, format!("[registry]\n{keys}")).unwrap();
        Config::read(Some(&file)).unwrap()
    }

    /// CACHE-14
    #[test]
    fn the_nodes_credential_is_read_from_its_file_and_left_in_no_settings() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("password"), "s3cret\n").unwrap();
        let keys = "repo = \"r.example.com:5000/vk\"\nusername = \"node\"\n\
                    password_file = \"password\"\ninsecure = [\"r.example.com:5000\"]";
        let settings = CacheSettings::of(&config(dir.path(), keys));
        let left = serde_json::to_string(&settings).unwrap();
        assert!(!left.contains("s3cret"), "{left}");
        let caches = settings.read().unwrap();
        assert_eq!(caches.repo.as_deref(), Some("r.example.com:5000/vk"));
        let credential = caches.credential.unwrap();
        assert_eq!(credential.username, "node");
        assert_eq!(credential.password.reveal(), "s3cret");
        assert!(caches.insecure && !caches.job_token_only);
    }

    #[test]
    fn a_file_that_is_not_there_costs_the_caches_and_says_which() {
        let dir = tempfile::tempdir().unwrap();
        for key in [
            "ca_file = \"gone\"",
            "username = \"n\"\npassword_file = \"gone\"",
        ] {
            let keys = format!("repo = \"r.example.com/vk\"\n{key}");
            let settings = CacheSettings::of(&config(dir.path(), &keys));
            let why = settings.caches().unusable.unwrap();
            assert!(
                why.contains("cannot read registry.") && why.contains("gone"),
                "{why}"
            );
        }
        // As settings of before there were caches.
        let none: CacheSettings = serde_json::from_str("{}").unwrap();
        let caches = none.caches();
        assert!(caches.repo.is_none() && caches.unusable.is_none());
    }

    /// REG-01, REG-22
    #[test]
    fn a_token_serves_the_registry_that_it_was_made_for_alone() {
        let dir = tempfile::tempdir().unwrap();
        let keys = "repo = \"r.example.com:5000/vk\"";
        let settings = CacheSettings::of(&config(dir.path(), keys));
        let of = |url: &str| {
            let token = RegistryToken {
                url: url.to_owned(),
                username: "vk-job".to_owned(),
                token: "t0ken".into(),
                expires_at: std::time::Instant::now(),
                cache_repository: Some("a/b".to_owned()),
            };
            let granted = settings.caches_of(Some(token)).granted;
            granted.map(|grant| (grant.token.reveal().to_owned(), grant.repository))
        };
        let given = ("t0ken".to_owned(), Some("a/b".to_owned()));
        assert_eq!(of("https://r.example.com:5000"), Some(given));
        for other in ["http://r.example.com:5000", "https://r.example.com", ""] {
            assert_eq!(of(other), None, "{other}");
        }
        assert!(settings.caches_of(None).granted.is_none());
    }
}
