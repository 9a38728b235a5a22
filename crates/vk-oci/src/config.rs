//! Image configurations: how an image is run, and what its layers are uncompressed.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::digest::Digest;
use crate::manifest::{Manifest, ManifestError};
use crate::platform::Platform;

/// An image's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageConfig {
    /// What it was built for.
    pub platform: Platform,
    /// How it is run.
    pub run: RunConfig,
    /// Digests of the uncompressed layers, lowest first.
    pub diff_ids: Vec<Digest>,
}

/// How an image wants to be run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunConfig {
    /// What is run, with its first arguments.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// What follows the entrypoint.
    #[serde(default)]
    pub cmd: Vec<String>,
    /// `NAME=value` each.
    #[serde(default)]
    pub env: Vec<String>,
    /// Where it is run; empty for `/`.
    #[serde(default)]
    pub working_dir: String,
    /// `user[:group]`, names or numbers; empty for root.
    #[serde(default)]
    pub user: String,
    /// `port[/protocol]` each.
    #[serde(default)]
    pub exposed_ports: Vec<String>,
    /// What to send it to end; empty for `SIGTERM`.
    #[serde(default)]
    pub stop_signal: String,
}

#[derive(Deserialize)]
struct RawConfig {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    config: RawRun,
    #[serde(default)]
    rootfs: Option<RawRootfs>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RawRun {
    #[serde(deserialize_with = "null_is_default")]
    entrypoint: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    cmd: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    env: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    working_dir: String,
    #[serde(deserialize_with = "null_is_default")]
    user: String,
    #[serde(deserialize_with = "null_is_default")]
    exposed_ports: BTreeMap<String, serde::de::IgnoredAny>,
    #[serde(deserialize_with = "null_is_default")]
    stop_signal: String,
}

#[derive(Deserialize)]
struct RawRootfs {
    #[serde(default, deserialize_with = "null_is_default")]
    diff_ids: Vec<String>,
}

impl ImageConfig {
    /// Reads an image configuration of OCI or Docker form.
    ///
    /// # Errors
    /// Any other document.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let raw: RawConfig = serde_json::from_slice(bytes)?;
        let rootfs = raw.rootfs.ok_or(ManifestError::NotAnImage)?;
        let parse = |text: &String| text.parse().map_err(|_| ManifestError::Digest);
        let diff_ids = rootfs
            .diff_ids
            .iter()
            .map(parse)
            .collect::<Result<Vec<_>, _>>()?;
        let run = RunConfig {
            entrypoint: raw.config.entrypoint,
            cmd: raw.config.cmd,
            env: raw.config.env,
            working_dir: raw.config.working_dir,
            user: raw.config.user,
            exposed_ports: raw.config.exposed_ports.into_keys().collect(),
            stop_signal: raw.config.stop_signal,
        };
        let RawConfig {
            os,
            architecture,
            variant,
            ..
        } = raw;
        Ok(Self {
            platform: Platform {
                os,
                architecture,
                variant,
            },
            run,
            diff_ids,
        })
    }

    /// Checks that every layer of `manifest` has its uncompressed digest here.
    ///
    /// # Errors
    /// Different numbers of the two.
    pub fn check_layers(&self, manifest: &Manifest) -> Result<(), ManifestError> {
        let (layers, diff_ids) = (manifest.layers.len(), self.diff_ids.len());
        if layers != diff_ids {
            return Err(ManifestError::Layers { layers, diff_ids });
        }
        Ok(())
    }
}

pub(crate) fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
