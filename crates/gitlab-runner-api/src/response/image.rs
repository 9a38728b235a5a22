//! Images and services of a job.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::job::Variable;
use super::lenient::{user, zero};

/// The job's image, or a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct Image {
    #[serde(default, deserialize_with = "zero")]
    pub name: String,
    #[serde(default, deserialize_with = "zero")]
    pub alias: String,
    #[serde(default, deserialize_with = "zero")]
    pub command: Vec<String>,
    #[serde(default, deserialize_with = "zero")]
    pub entrypoint: Vec<String>,
    #[serde(default, deserialize_with = "zero")]
    pub ports: Vec<Port>,
    #[serde(default, deserialize_with = "zero")]
    pub variables: Vec<Variable>,
    #[serde(default, deserialize_with = "zero")]
    pub pull_policy: Vec<String>,
    #[serde(default, deserialize_with = "zero")]
    pub executor_opts: ExecutorOptions,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct Port {
    #[serde(default, deserialize_with = "zero")]
    pub number: i64,
    #[serde(default, deserialize_with = "zero")]
    pub protocol: String,
    #[serde(default, deserialize_with = "zero")]
    pub name: String,
}

/// Options for executors; unknown ones are kept by name (SPEC-70).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct ExecutorOptions {
    #[serde(default, deserialize_with = "zero")]
    pub docker: DockerOptions,
    #[serde(default, deserialize_with = "zero")]
    pub kubernetes: KubernetesOptions,
    #[serde(flatten)]
    unknown: BTreeMap<String, Ignored>,
}

/// Docker's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct DockerOptions {
    #[serde(default, deserialize_with = "zero")]
    pub platform: String,
    #[serde(default, deserialize_with = "user")]
    pub user: String,
    #[serde(flatten)]
    unknown: BTreeMap<String, Ignored>,
}

/// Kubernetes'.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are GitLab's")]
pub struct KubernetesOptions {
    #[serde(default, deserialize_with = "user")]
    pub user: String,
    #[serde(flatten)]
    unknown: BTreeMap<String, Ignored>,
}

/// A value of which the name alone counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(from).map(|_| Ignored)
    }
}

/// Options nobody supports, in upstream's words, one a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnsupportedOptions(String);

impl ExecutorOptions {
    /// Options that are not supported (SPEC-70); services are named as images, as upstream does.
    ///
    /// # Errors
    /// There are some.
    pub fn check(&self) -> Result<(), UnsupportedOptions> {
        let groups = [
            (&self.unknown, "executor_opts", "docker kubernetes"),
            (&self.docker.unknown, "docker executor", "platform user"),
            (&self.kubernetes.unknown, "kubernetes executor", "user"),
        ];
        let lines = groups.into_iter().filter(|(unknown, ..)| !unknown.is_empty()).map(
            |(unknown, whose, supported)| {
                let names: Vec<&str> = unknown.keys().map(String::as_str).collect();
                let names = names.join(" ");
                format!(
                    "Unsupported \"image\" options [{names}] for \"{whose}\"; supported options are [{supported}]"
                )
            },
        );
        let lines: Vec<String> = lines.collect();
        if lines.is_empty() {
            Ok(())
        } else {
            Err(UnsupportedOptions(lines.join("\n")))
        }
    }
}
