//! Can the node keep jobs' caches at its registry.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vk_driver::Caches;
use vk_image::{Keychain, Reference, RegistryClient, RegistryConfig};
use vk_node::config::{Config, Registry};
use vk_oci::Error;

use super::{Found, chain};
use crate::node::caches::CacheSettings;

/// How long a registry may be silent.
const ANSWER: Duration = Duration::from_secs(10);
/// The repository below `repo` that is asked for and written to.
const REPOSITORY: &str = "vk-check";

pub(super) async fn registry(config: &Config) -> Found {
    let Some(registry) = &config.registry else {
        return Found::skipped("none: jobs have no caches; [registry] repo would name one");
    };
    let caches = match CacheSettings::of(config).read() {
        Ok(caches) => caches,
        Err(error) => {
            let remedy = "make the file readable for this user, or name another one";
            return Found::fail(chain(error), remedy);
        }
    };
    let repo = &registry.repo;
    match ask(registry, &caches).await {
        Ok(()) if registry.job_token_only => Found::ok(format!(
            "{repo} answers; jobs bring tokens of their own: guest_credential = \"job\""
        )),
        Ok(()) => Found::ok(format!("{repo} is read and written")),
        Err(error) => {
            let remedy = remedy(registry, &error);
            Found::fail(what(error), remedy)
        }
    }
}

/// Reads what is not there, and writes a few bytes that nothing names: the registry's next collection
/// of garbage removes them.
async fn ask(registry: &Registry, caches: &Caches) -> Result<(), Error> {
    let client = client(registry, caches)?;
    let name = format!("{}/{REPOSITORY}:probe", registry.repo);
    let probe: Reference = name.parse().map_err(|error| Error::Setup {
        what: format!("{name} is no repository: {error}"),
    })?;
    let read = client.digest_of(&probe).await;
    if registry.job_token_only {
        // Whether a job's token is taken shows when a job brings one.
        return match read {
            Err(Error::NotFound { .. } | Error::Denied { .. }) => Ok(()),
            other => other.map(|_| ()),
        };
    }
    match read {
        Ok(_) | Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    // What is there already would not be written.
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_nanos());
    let bytes = format!("vk check {now}\n");
    client.push_small(&probe, bytes.as_bytes()).await?;
    Ok(())
}

fn client(registry: &Registry, caches: &Caches) -> Result<RegistryClient, Error> {
    let mut keychain = Keychain::default();
    if let Some(credential) = &caches.credential {
        keychain.add(registry.host(), credential.clone());
    }
    let mut insecure = BTreeSet::new();
    if caches.insecure {
        insecure.insert(registry.host().to_owned());
    }
    RegistryClient::new(RegistryConfig {
        keychain,
        insecure,
        authorities: caches.authorities.clone(),
        attempts: 1,
        idle_timeout: ANSWER,
        request_timeout: Some(ANSWER),
        ..RegistryConfig::default()
    })
}

/// The error, without what only people with images need.
fn what(error: Error) -> String {
    match error {
        Error::NotFound { image } => format!("there is no repository for {image}"),
        Error::Denied {
            image,
            by,
            with_credential,
            message,
        } => {
            let how = if with_credential { "with" } else { "without" };
            format!("{image}: denied by {by}, asked {how} a credential: {message}")
        }
        error => chain(error),
    }
}

fn remedy(registry: &Registry, error: &Error) -> String {
    let (repo, host) = (&registry.repo, registry.host());
    match error {
        Error::Unreachable { .. } => {
            let why = chain_of(error);
            if why.contains("certificate") {
                "name the authority of its certificate as registry.ca_file (PEM)".to_owned()
            } else if why.contains("InvalidContentType") {
                format!("it speaks no TLS: give it some, or [registry] insecure = [\"{host}\"]")
            } else {
                format!("see that {host} runs and that this host reaches it, or mend registry.repo")
            }
        }
        Error::Denied {
            with_credential: true,
            ..
        } => format!(
            "mend registry.username and the content of registry.password_file: who they name must \
             read and write below {repo}"
        ),
        Error::Denied { .. } => "set registry.username and registry.password_file".to_owned(),
        Error::Refused { .. } => {
            format!("give it TLS: a password goes to {host} over TLS alone")
        }
        Error::NotFound { .. } => {
            format!("make the repository or project {repo} there, or mend registry.repo")
        }
        Error::RateLimited { .. } => "wait, and use registry.username".to_owned(),
        Error::Answer { status, .. } if *status >= 500 => {
            format!("look into the log of {host}")
        }
        _ => format!("see that {host} is a registry that takes artifacts below {repo}"),
    }
}

fn chain_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        text.push_str(&format!(": {one}"));
        cause = one.source();
    }
    text
}
