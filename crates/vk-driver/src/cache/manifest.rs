//! The manifest of a cache: an OCI artifact of one layer (CACHE-02, CACHE-17).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use vk_oci::Digest;

/// The manifest's own media type.
pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// Bytes of a manifest at most.
pub(crate) const MANIFEST_MAX: u64 = 64 << 10;
/// The content of the configuration that says nothing.
pub(crate) const EMPTY_CONFIG: &[u8] = b"{}";
const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
const ARTIFACT_TYPE: &str = "application/vnd.vk.ci-cache.v1";
const LAYER_TYPE: &str = "application/vnd.vk.ci-cache.layer.v1.tar+zstd";
const CREATED: &str = "org.opencontainers.image.created";
const ENTRIES: &str = "vnd.vk.ci-cache.entries";
const BYTES: &str = "vnd.vk.ci-cache.bytes";

/// A cache as its manifest tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) layer: Digest,
    /// The layer's, in bytes.
    pub(crate) size: u64,
    /// When it was saved, where that is told.
    pub(crate) created: Option<Timestamp>,
    /// Files, directories and links in it, where that is told.
    pub(crate) entries: Option<u64>,
    /// What its files have together, where that is told.
    pub(crate) bytes: Option<u64>,
}

/// Why a manifest is no cache's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("its manifest is not the JSON it should be: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it is no cache of a job ({0})")]
    Other(&'static str),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    schema_version: u32,
    media_type: String,
    #[serde(default)]
    artifact_type: String,
    config: Descriptor,
    layers: Vec<Descriptor>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Saved {
    /// The manifest's bytes.
    pub(crate) fn write(&self) -> Result<Vec<u8>, ManifestError> {
        let told = [
            (CREATED, self.created.map(|at| at.to_string())),
            (ENTRIES, self.entries.map(|n| n.to_string())),
            (BYTES, self.bytes.map(|n| n.to_string())),
        ];
        let told = told
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let document = Document {
            schema_version: 2,
            media_type: MANIFEST_TYPE.to_owned(),
            artifact_type: ARTIFACT_TYPE.to_owned(),
            config: Descriptor {
                media_type: EMPTY_TYPE.to_owned(),
                digest: Digest::of(EMPTY_CONFIG).to_string(),
                size: EMPTY_CONFIG.len() as u64,
            },
            layers: vec![Descriptor {
                media_type: LAYER_TYPE.to_owned(),
                digest: self.layer.to_string(),
                size: self.size,
            }],
            annotations: told.collect(),
        };
        Ok(serde_json::to_vec(&document)?)
    }

    /// Reads a manifest: nothing else than a cache's is taken for one.
    pub(crate) fn read(bytes: &[u8]) -> Result<Saved, ManifestError> {
        let document: Document = serde_json::from_slice(bytes)?;
        let other = |what| Err(ManifestError::Other(what));
        if document.schema_version != 2 || document.media_type != MANIFEST_TYPE {
            return other("its manifest is of another form");
        }
        if document.artifact_type != ARTIFACT_TYPE {
            return other("it is an artifact of another type");
        }
        let [layer] = document.layers.as_slice() else {
            return other("it has not exactly one layer");
        };
        if layer.media_type != LAYER_TYPE {
            return other("its layer is of another type");
        }
        let Ok(digest) = layer.digest.parse() else {
            return other("its layer has no SHA-256 digest");
        };
        let told = |name: &str| document.annotations.get(name).map(String::as_str);
        Ok(Saved {
            layer: digest,
            size: layer.size,
            created: told(CREATED).and_then(|text| text.parse().ok()),
            entries: told(ENTRIES).and_then(|text| text.parse().ok()),
            bytes: told(BYTES).and_then(|text| text.parse().ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = include_str!("../../tests/golden/ci-cache-manifest.json");

    fn saved() -> Saved {
        Saved {
            layer: Digest::of(b"layer"),
            size: 5,
            created: Some("2026-11-30T07:00:00Z".parse().unwrap()),
            entries: Some(3),
            bytes: Some(17),
        }
    }

    /// CACHE-02, CACHE-17
    #[test]
    fn a_manifest_has_this_shape() {
        let written = String::from_utf8(saved().write().unwrap()).unwrap();
        assert_eq!(written, GOLDEN.trim_end());
        assert_eq!(Saved::read(GOLDEN.as_bytes()).unwrap(), saved());
    }

    /// CACHE-02, CACHE-08, CACHE-17
    #[test]
    fn what_is_no_cache_is_not_taken_for_one() {
        let layer = "{\"mediaType\":\"application/vnd.vk.ci-cache.layer.v1.tar+zstd\"";
        for (from, to) in [
            ("\"schemaVersion\":2", "\"schemaVersion\":1"),
            ("vnd.vk.ci-cache.v1", "vnd.vk.ci-cache.v2"),
            ("layer.v1.tar+zstd", "layer.v1.tar"),
            ("layers\":[", "layers\":[],\"x\":["),
            ("sha256:dac1", "sha512:dac1"),
            (layer, "{\"mediaType\":7"),
            ("oci.image.manifest", "oci.image.index"),
        ] {
            let changed = GOLDEN.replacen(from, to, 1);
            assert_ne!(changed, GOLDEN, "{from}");
            assert!(Saved::read(changed.as_bytes()).is_err(), "{from}");
        }
        let twice = GOLDEN.replacen(
            "}],",
            &format!("}},{layer},\"digest\":\"x\",\"size\":1}}],"),
            1,
        );
        assert_ne!(twice, GOLDEN);
        let error = Saved::read(twice.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("exactly one layer"), "{error}");
    }

    #[test]
    fn a_cache_that_tells_nothing_of_itself_is_one_all_the_same() {
        let bare = Saved {
            created: None,
            entries: None,
            bytes: None,
            ..saved()
        };
        assert_eq!(Saved::read(&bare.write().unwrap()).unwrap(), bare);
        let odd = GOLDEN.replacen("2026-11-30", "yesterday", 1);
        assert_eq!(Saved::read(odd.as_bytes()).unwrap().created, None);
    }
}
