//! The job's image, by the node's rules (SPEC-39).

mod auth_config;

use std::collections::BTreeSet;

use vk_hub_proto::job::{FailureClass, PullPolicy as Wanted, RegistryCredential};
use vk_image::{
    Credential, Error, Keychain, Lease, Password, Platform, Progress, PullPolicy, Puller, Rules,
};
use vk_stage_core::StageEnd;
use vk_trace::Line;

use super::{failed, with_causes};
use crate::job::Job;

/// Holds the image, pulled where the policy says so.
pub(super) async fn resolve(job: &Job) -> Result<Lease, StageEnd> {
    let wanted = &job.spec().image;
    let name = job.expand(&wanted.name, "the image's name")?;
    let policies = wanted.pull_policy.iter().map(|policy| match policy {
        Wanted::Always => PullPolicy::Always,
        Wanted::IfNotPresent => PullPolicy::IfNotPresent,
        Wanted::Never => PullPolicy::Never,
    });
    let policies: Vec<_> = policies.collect();
    let configuration =
        |error: &dyn std::error::Error| failed(FailureClass::Configuration, with_causes(error));
    let choice = job.context.images.rules.resolve(&name, &policies);
    let choice = choice.map_err(|error| configuration(&error))?;
    let platform = wanted.platform.as_deref().unwrap_or_default();
    let platform = match job.expand(platform, "the image's platform")? {
        text if !text.is_empty() => text.parse::<Platform>().map_err(|e| configuration(&e))?,
        _ => Platform::default(),
    };
    let shown = choice.reference.familiar();
    job.output.line(Line::Plain(&format!(
        "Using VM executor with image {shown} ..."
    )));
    let tried: Vec<_> = choice.policies.iter().map(ToString::to_string).collect();
    let line = format!(
        "Using effective pull policy of [{}] for image {shown}",
        tried.join(" ")
    );
    job.output.line(Line::Plain(&line));
    let config = vk_oci::Config {
        keychain: keychain(job),
        insecure: job
            .context
            .images
            .insecure_registries
            .iter()
            .cloned()
            .collect(),
        near: vk_oci::Near::Named(named_registries(job)),
        ..vk_oci::Config::default()
    };
    let client = vk_oci::Client::new(config).map_err(|error| pull_failed(&Error::Pull(error)))?;
    let puller = Puller::new(job.context.images.store.clone(), client, platform);
    let progress = |progress: Progress| tell(job, progress);
    let outcome = puller
        .get(&choice.reference, &choice.policies, &progress)
        .await;
    let outcome = outcome.map_err(|error| {
        job.count(|counts| counts.pulls_failed += 1);
        pull_failed(&error)
    })?;
    if outcome.fetched {
        job.count(|counts| counts.pulls += 1);
    }
    let digest = outcome.lease.record().digest.to_string();
    let how = match (outcome.fetched, outcome.imported) {
        (true, _) => "pulled",
        (false, true) => "imported on the node",
        (false, false) => "found on the node",
    };
    let line = format!("Using image {shown} with digest {digest}, {how}");
    job.output.line(Line::Plain(&line));
    Ok(outcome.lease)
}

fn tell(job: &Job, progress: Progress) {
    match progress {
        Progress::Pulling { image } => {
            job.activity(Some("pulling the image"));
            job.output
                .line(Line::Plain(&format!("Pulling image {image} ...")));
        }
        Progress::Waiting {
            registry,
            waited,
            then,
        } => {
            job.activity(Some("waiting for the registry"));
            let then = match then {
                Some((after, next)) => {
                    let after = after.as_secs();
                    format!("; \"{next}\" pull policy is tried after {after} s")
                }
                None => String::new(),
            };
            let waited = waited.as_secs();
            let line = format!("No answer from {registry} for {waited} s so far{then} ...");
            job.output.line(Line::Plain(&line));
        }
        Progress::Building { layers } => {
            let line = format!("Making a disk of {layers} layers ...");
            job.output.line(Line::Plain(&line));
        }
        Progress::NextPolicy { failed, why, next } => {
            let line = format!("Failed to pull image with policy \"{failed}\": {why}");
            job.output.line(Line::Warning(&line));
            job.output
                .line(Line::Plain(&format!("Trying \"{next}\" pull policy")));
        }
        _ => {}
    }
}

/// Registries that the node's owner names: such a one may be at any address, a job's own not at one of
/// the node itself.
fn named_registries(job: &Job) -> BTreeSet<String> {
    let images = &job.context.images;
    let repo = job.context.caches.repo.as_deref();
    let mut named = named(&images.rules, &images.insecure_registries, repo);
    // GitLab's own registry is as near as that GitLab is, and no job says which it is.
    let own = job.spec().registry_credentials.iter();
    named.extend(own.map(|credential| host_of(&credential.url)));
    // Places are compared without the usual ports.
    let usual = |host: &String| {
        host.strip_suffix(":443")
            .or(host.strip_suffix(":80"))
            .map(str::to_owned)
    };
    let short: Vec<_> = named.iter().filter_map(usual).collect();
    named.extend(short);
    named
}

/// A registry's host and port, of a URL or of a name.
fn host_of(registry: &str) -> String {
    let bare = registry
        .split_once("://")
        .map_or(registry, |(_, rest)| rest);
    bare.split('/').next().unwrap_or_default().to_owned()
}

fn named(rules: &Rules, insecure: &[String], repo: Option<&str>) -> BTreeSet<String> {
    let allowed = rules.allowed_images.iter().map(String::as_str);
    let images = allowed.chain(rules.default_image.as_deref());
    let hosts = images.filter_map(|image| image.split_once('/'));
    let repo = repo.map(|repo| repo.split_once('/').map_or(repo, |(host, _)| host));
    let hosts = hosts.map(|(host, _)| host).chain(repo).map(str::to_owned);
    hosts.chain(insecure.iter().cloned()).collect()
}

/// FAIL-33: whatever it is, it is the image's; but where it may come from is the node's owner's.
fn pull_failed(error: &Error) -> StageEnd {
    StageEnd::Failed {
        class: match error {
            Error::Pull(vk_oci::Error::Near { .. }) => FailureClass::Configuration,
            _ => FailureClass::ImagePull,
        },
        message: with_causes(error),
        transient: error.is_transient(),
    }
}

fn keychain(job: &Job) -> Keychain {
    let text = {
        let shared = job.shared();
        let given = shared.variables.content("DOCKER_AUTH_CONFIG");
        given.unwrap_or_default().to_owned()
    };
    let (keychain, warnings) = keychain_of(&text, &job.spec().registry_credentials);
    for line in &warnings {
        job.output.line(Line::Warning(line));
    }
    keychain
}

/// The job's `DOCKER_AUTH_CONFIG`, then what GitLab gave with the job; and what is to be said.
fn keychain_of(config: &str, given: &[RegistryCredential]) -> (Keychain, Vec<String>) {
    let mut keychain = Keychain::default();
    let config = auth_config::read(config);
    for (place, credential) in config.credentials {
        keychain.add(&place, credential);
    }
    for credential in given {
        let password = Password::new(credential.password.expose().to_owned());
        let username = credential.username.clone();
        keychain.add(&credential.url, Credential { username, password });
    }
    (keychain, config.warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owners_registries_are_those_that_the_settings_name() {
        let rules = Rules {
            default_image: Some("127.0.0.1:1/base".into()),
            allowed_images: vec!["localhost:2/**".into(), "debian:*".into()],
            ..Rules::default()
        };
        let named = named(&rules, &["10.0.0.1:3".into()], Some("127.0.0.1:4/vk"));
        let named: Vec<_> = named.iter().map(String::as_str).collect();
        let expected = ["10.0.0.1:3", "127.0.0.1:1", "127.0.0.1:4", "localhost:2"];
        assert_eq!(named, expected);
    }

    /// CRED-08: the longest path wins, and of two for one path the job's own variable.
    #[test]
    fn the_jobs_own_configuration_comes_before_what_gitlab_gave() {
        let own = r#"{"auths": {
            "registry.example.com": {"username": "own", "password": "p"},
            "https://index.docker.io/v1/": {"username": "hub", "password": "p"},
            "registry.example.com/deep/group": {"username": "deep", "password": "p"}}}"#;
        let given = |url: &str| RegistryCredential {
            url: url.to_owned(),
            username: format!("gitlab {url}"),
            password: "p".into(),
        };
        let given = [
            given("registry.example.com"),
            given("registry.example.com/deep"),
            given("other.example.com"),
        ];
        let (keychain, _) = keychain_of(own, &given);
        for (image, user) in [
            ("registry.example.com/a:1", Some("own")),
            (
                "registry.example.com/deep/a",
                Some("gitlab registry.example.com/deep"),
            ),
            ("registry.example.com/deep/group/a", Some("deep")),
            ("other.example.com/a", Some("gitlab other.example.com")),
            ("debian:13", Some("hub")),
            ("nowhere.example.com/a", None),
        ] {
            let found = keychain.find(&image.parse().unwrap());
            assert_eq!(found.map(|one| one.username.as_str()), user, "{image}");
        }
    }
}
