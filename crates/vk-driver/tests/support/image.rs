//! Images made for a test: busybox and more, or neither, with settings of their own.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use vk_image::{Platform, Store};
use vk_oci::Digest;

use crate::support::Node;

impl Node {
    /// Makes an image of `layers` (tar archives, lowest first) whose settings are `config`.
    pub(crate) fn image(&self, name: &str, config: &Value, layers: &[Vec<u8>]) {
        let path = self.dir.path().join("image.tar");
        let diff_ids = layers.iter().map(|layer| Digest::of(layer).to_string());
        let config = json!({
            "architecture": "amd64", "os": "linux", "config": config,
            "rootfs": { "type": "layers", "diff_ids": diff_ids.collect::<Vec<_>>() }
        });
        let names = layers
            .iter()
            .map(|layer| format!("{}.tar", Digest::of(layer).hex()));
        let names: Vec<_> = names.collect();
        let config = config.to_string();
        let config_name = format!("{}.json", Digest::of(config.as_bytes()).hex());
        let manifest = json!([{ "Config": config_name, "RepoTags": [name], "Layers": names }]);
        let mut archive = tar::Builder::new(std::fs::File::create(&path).unwrap());
        put(
            &mut archive,
            "manifest.json",
            manifest.to_string().as_bytes(),
        );
        put(&mut archive, &config_name, config.as_bytes());
        for (name, layer) in names.iter().zip(layers) {
            put(&mut archive, name, layer);
        }
        archive.into_inner().unwrap();
        let store = Store::open(&self.dir.path().join("images")).unwrap();
        let made = store.import(&path, name, &Platform::default());
        drop(made.unwrap());
    }

    /// Busybox, as a layer.
    pub(crate) fn busybox(&self) -> Vec<u8> {
        std::fs::read(self.root.join("images/busybox.tar")).unwrap()
    }
}

/// A layer of a few files.
pub(crate) fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, text) in files {
        put(&mut archive, name, text.as_bytes());
    }
    archive.into_inner().unwrap()
}

fn put(archive: &mut tar::Builder<impl Write>, name: &str, bytes: &[u8]) {
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    archive
        .append_data(&mut header, Path::new(name), bytes)
        .unwrap();
}
