//! OCI layouts: `oci-layout`, `index.json`, `blobs/sha256/…`.

use vk_erofs::Whiteouts;
use vk_oci::{Descriptor, Digest, ImageConfig, Index, Manifest, ManifestError, limits};

use crate::build::{Identity, Layer};
use crate::error::Error;
use crate::record::Origin;
use crate::store::Lease;

use super::Import;
use super::files::Files;

/// Indexes within indexes.
const DEPTH_MAX: usize = 3;

impl Import<'_> {
    pub(super) fn layout(mut self, files: &Files<'_>) -> Result<Lease, Error> {
        let bytes = files.small("index.json", limits::MANIFEST_BYTES)?;
        let index = Index::parse(&bytes).map_err(|source| self.document("index.json", source))?;
        let (digest, manifest) = self.choose(files, &index)?;
        let config_bytes = blob(files, manifest.config.digest, limits::CONFIG_BYTES)?;
        self.check(manifest.config.digest, &config_bytes)?;
        let unusable = |error| self.document("the configuration", error);
        let config = ImageConfig::parse(&config_bytes).map_err(unusable)?;
        config.check_layers(&manifest).map_err(unusable)?;
        for (layer, diff_id) in manifest.layers.iter().zip(&config.diff_ids) {
            let (stored, size) = files.open(&blob_name(layer.digest))?;
            if size != layer.size {
                let what = format!(
                    "{} in it has {size} bytes, not {}",
                    layer.digest, layer.size
                );
                return Err(self.refuse(what));
            }
            self.build.layer(Layer {
                stored,
                stored_digest: Some(layer.digest),
                diff_id: Some(*diff_id),
                whiteouts: Whiteouts::Oci,
            })?;
        }
        self.build.commit(Identity::new(
            digest,
            config,
            config_bytes,
            Origin::Imported,
        ))
    }

    /// The one image for the platform.
    fn choose(&self, files: &Files<'_>, index: &Index) -> Result<(Digest, Manifest), Error> {
        let mut entry = self.only(index)?;
        for _ in 0..DEPTH_MAX {
            let bytes = blob(files, entry.digest, limits::MANIFEST_BYTES)?;
            self.check(entry.digest, &bytes)?;
            match Manifest::parse(&bytes) {
                Ok(manifest) => return Ok((entry.digest, manifest)),
                Err(ManifestError::Kind) => {}
                Err(error) => return Err(self.document("the manifest", error)),
            }
            let inner = Index::parse(&bytes).map_err(|source| self.document("an index", source))?;
            entry = inner
                .choose(self.platform)
                .cloned()
                .ok_or_else(|| self.no_platform(&inner))?;
        }
        Err(self.refuse("its indexes lead nowhere"))
    }

    /// Of several images in a layout none is better than another.
    fn only(&self, index: &Index) -> Result<Descriptor, Error> {
        let serves = |entry: &&Descriptor| {
            entry
                .platform
                .as_ref()
                .is_none_or(|it| it.serves(self.platform))
        };
        let mut fitting: Vec<&Descriptor> = index.manifests.iter().filter(serves).collect();
        fitting.dedup_by_key(|entry| entry.digest);
        match fitting.as_slice() {
            [] => Err(self.no_platform(index)),
            [entry] => Ok((*entry).clone()),
            several => {
                let name = |entry: &&Descriptor| {
                    entry
                        .annotations
                        .get("org.opencontainers.image.ref.name")
                        .cloned()
                };
                let names: Vec<String> = several.iter().filter_map(name).take(16).collect();
                let what = format!(
                    "it holds {} images ({}): make one with a single image",
                    several.len(),
                    names.join(", ")
                );
                Err(self.refuse(what))
            }
        }
    }

    fn no_platform(&self, index: &Index) -> Error {
        let there = index.platforms().join(", ");
        self.refuse(format!(
            "it has nothing for {}, only for {there}",
            self.platform
        ))
    }

    fn check(&self, wanted: Digest, bytes: &[u8]) -> Result<(), Error> {
        if Digest::of(bytes) == wanted {
            return Ok(());
        }
        Err(self.refuse(format!("{wanted} in it is damaged")))
    }
}

fn blob(files: &Files<'_>, digest: Digest, limit: u64) -> Result<Vec<u8>, Error> {
    files.small(&blob_name(digest), limit)
}

fn blob_name(digest: Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}
