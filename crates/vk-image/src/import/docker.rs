//! `docker save` archives: `manifest.json`, a configuration, layers.

use serde::Deserialize;
use vk_erofs::Whiteouts;
use vk_oci::{Digest, ImageConfig, ManifestError, limits};

use crate::build::{Identity, Layer};
use crate::error::Error;
use crate::record::Origin;
use crate::store::Lease;

use super::Import;
use super::files::Files;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Import<'_> {
    pub(super) fn docker_archive(mut self, files: &Files<'_>) -> Result<Lease, Error> {
        let saved = self.saved(files)?;
        let config_bytes = files.small(&saved.config, limits::CONFIG_BYTES)?;
        let unusable = |error| self.document("the configuration", error);
        let config = ImageConfig::parse(&config_bytes).map_err(unusable)?;
        let (layers, diff_ids) = (saved.layers.len(), config.diff_ids.len());
        if layers > limits::LAYERS {
            return Err(unusable(ManifestError::TooMany("layers")));
        }
        if layers != diff_ids {
            return Err(unusable(ManifestError::Layers { layers, diff_ids }));
        }
        if !config.platform.serves(self.platform) {
            let what = format!("it is for {}, not for {}", config.platform, self.platform);
            return Err(self.refuse(what));
        }
        for (layer, diff_id) in saved.layers.iter().zip(&config.diff_ids) {
            let (stored, _) = files.open(layer)?;
            self.build.layer(Layer {
                stored,
                stored_digest: None,
                diff_id: Some(*diff_id),
                whiteouts: Whiteouts::Oci,
            })?;
        }
        // Such an archive has no manifest of its own: the configuration names all of it.
        self.build.commit(Identity::new(
            Digest::of(&config_bytes),
            config,
            config_bytes,
            Origin::Imported,
        ))
    }

    fn saved(&self, files: &Files<'_>) -> Result<Saved, Error> {
        let bytes = files.small("manifest.json", limits::MANIFEST_BYTES)?;
        let images: Vec<Saved> = serde_json::from_slice(&bytes)
            .map_err(|error| self.document("manifest.json", ManifestError::Json(error)))?;
        let count = images.len();
        let tags = |image: &Saved| image.repo_tags.clone().unwrap_or_default();
        let names: Vec<String> = images.iter().flat_map(tags).take(16).collect();
        let mut images = images.into_iter();
        match (images.next(), images.next()) {
            (Some(image), None) => Ok(image),
            (None, _) => Err(self.refuse("it holds no image")),
            _ => {
                let what = format!(
                    "it holds {count} images ({}): save one alone",
                    names.join(", ")
                );
                Err(self.refuse(what))
            }
        }
    }
}
