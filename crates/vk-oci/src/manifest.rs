//! Manifests, indexes and image configurations, read within bounds.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::config::null_is_default;
use crate::digest::Digest;
use crate::platform::Platform;

/// What a registry or an archive may make us read.
pub mod limits {
    /// Bytes of a manifest or an index, as registries allow them.
    pub const MANIFEST_BYTES: u64 = 4 << 20;
    /// Bytes of an image configuration.
    pub const CONFIG_BYTES: u64 = 4 << 20;
    /// Layers of an image.
    pub const LAYERS: usize = 512;
    /// Manifests of an index.
    pub const INDEX_ENTRIES: usize = 1024;
    /// Bytes of one layer as it is stored.
    pub const LAYER_BYTES: u64 = 64 << 30;
    /// Bytes of all layers as they are stored.
    pub const IMAGE_BYTES: u64 = 256 << 30;
}

/// Why a document is none we can use.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// No JSON, or not of the shape.
    #[error("it is not the JSON it should be")]
    Json(#[from] serde_json::Error),
    /// The format before 2016.
    #[error("it is a schema 1 manifest: push the image again with a current tool")]
    Schema1,
    /// Both an index and a manifest, or neither.
    #[error("it is neither an image manifest nor an index")]
    Kind,
    /// An artifact, such as a chart.
    #[error("it is not a container image (its configuration has no file system layers)")]
    NotAnImage,
    /// A digest of another algorithm or none.
    #[error("it has a digest that is not SHA-256")]
    Digest,
    /// A bound of [`limits`].
    #[error("it has {0} above the limit")]
    TooMany(&'static str),
    /// Layers and their uncompressed digests do not match.
    #[error("it has {layers} layers but {diff_ids} uncompressed digests")]
    Layers {
        /// In the manifest.
        layers: usize,
        /// In the configuration.
        diff_ids: usize,
    },
}

/// A content: what it is, which, how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Media type, as the document says it.
    pub media_type: String,
    /// What it hashes to.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    /// In an index: what it is for.
    pub platform: Option<Platform>,
    /// Notes; `org.opencontainers.image.ref.name` names an image within a layout.
    pub annotations: BTreeMap<String, String>,
}

/// An image: a configuration and layers, lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The image configuration.
    pub config: Descriptor,
    /// Tar archives, often compressed.
    pub layers: Vec<Descriptor>,
}

/// Several images, one a platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Images and further indexes.
    pub manifests: Vec<Descriptor>,
}

/// What a manifest's digest can lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Document {
    Manifest(Manifest),
    Index(Index),
}

#[derive(Deserialize)]
struct RawDescriptor {
    #[serde(default, rename = "mediaType")]
    media_type: String,
    digest: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default, deserialize_with = "null_is_default")]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct RawDocument {
    #[serde(default, rename = "schemaVersion")]
    schema_version: u64,
    #[serde(default)]
    config: Option<RawDescriptor>,
    #[serde(default)]
    layers: Option<Vec<RawDescriptor>>,
    #[serde(default)]
    manifests: Option<Vec<RawDescriptor>>,
}

impl TryFrom<RawDescriptor> for Descriptor {
    type Error = ManifestError;

    fn try_from(raw: RawDescriptor) -> Result<Self, ManifestError> {
        let RawDescriptor {
            media_type,
            digest,
            size,
            platform,
            annotations,
        } = raw;
        let digest = digest.parse().map_err(|_| ManifestError::Digest)?;
        Ok(Self {
            media_type,
            digest,
            size,
            platform,
            annotations,
        })
    }
}

impl Document {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let raw: RawDocument = serde_json::from_slice(bytes)?;
        if raw.schema_version == 1 {
            return Err(ManifestError::Schema1);
        }
        // A document that can be read both ways would be two images under one digest.
        match (raw.config, raw.layers, raw.manifests) {
            (Some(config), Some(layers), None) => manifest(config, layers).map(Self::Manifest),
            (None, None, Some(manifests)) => index(manifests).map(Self::Index),
            _ => Err(ManifestError::Kind),
        }
    }
}

fn manifest(config: RawDescriptor, layers: Vec<RawDescriptor>) -> Result<Manifest, ManifestError> {
    if layers.len() > limits::LAYERS {
        return Err(ManifestError::TooMany("layers"));
    }
    let layers: Vec<Descriptor> = layers
        .into_iter()
        .map(TryInto::try_into)
        .collect::<Result<_, _>>()?;
    let config: Descriptor = config.try_into()?;
    if config.size > limits::CONFIG_BYTES {
        return Err(ManifestError::TooMany("bytes of configuration"));
    }
    if layers.iter().any(|layer| layer.size > limits::LAYER_BYTES) {
        return Err(ManifestError::TooMany("bytes in a layer"));
    }
    if layers.iter().map(|layer| layer.size).sum::<u64>() > limits::IMAGE_BYTES {
        return Err(ManifestError::TooMany("bytes in its layers"));
    }
    Ok(Manifest { config, layers })
}

fn index(manifests: Vec<RawDescriptor>) -> Result<Index, ManifestError> {
    if manifests.len() > limits::INDEX_ENTRIES {
        return Err(ManifestError::TooMany("manifests"));
    }
    // One entry of another algorithm does not spoil the others.
    let manifests = manifests
        .into_iter()
        .filter_map(|raw| raw.try_into().ok())
        .collect();
    Ok(Index { manifests })
}

impl Manifest {
    /// Reads an image manifest of OCI or Docker form.
    ///
    /// # Errors
    /// Any other document, or one beyond [`limits`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        match Document::parse(bytes)? {
            Document::Manifest(manifest) => Ok(manifest),
            Document::Index(_) => Err(ManifestError::Kind),
        }
    }
}

impl Index {
    /// Reads an index of OCI form or a Docker manifest list.
    ///
    /// # Errors
    /// Any other document, or one beyond [`limits`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        match Document::parse(bytes)? {
            Document::Index(index) => Ok(index),
            Document::Manifest(_) => Err(ManifestError::Kind),
        }
    }

    /// The first entry that serves a platform; entries that say none are images all the same.
    pub fn choose(&self, wanted: &Platform) -> Option<&Descriptor> {
        let serves =
            |entry: &&Descriptor| entry.platform.as_ref().is_some_and(|it| it.serves(wanted));
        let unsaid = |entry: &&Descriptor| entry.platform.is_none();
        self.manifests
            .iter()
            .find(serves)
            .or_else(|| self.manifests.iter().find(unsaid))
    }

    /// What the entries are for, for messages.
    pub fn platforms(&self) -> Vec<String> {
        let said = self
            .manifests
            .iter()
            .filter_map(|entry| entry.platform.as_ref());
        said.filter(|platform| platform.os != "unknown")
            .take(16)
            .map(ToString::to_string)
            .collect()
    }
}

#[cfg(test)]
mod tests;
