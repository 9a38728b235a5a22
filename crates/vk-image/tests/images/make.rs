//! Archives of every kind, made here.

use std::collections::BTreeMap;
use std::io::Write;

use vk_image::Digest;

/// A tar of files with these contents.
pub(crate) fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let owned: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, text)| (*name, text.as_bytes()))
        .collect();
    tar_of(&owned)
}

pub(crate) fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// An image of layers, uncompressed and as stored.
pub(crate) struct Image {
    pub(crate) config: String,
    pub(crate) manifest: String,
    pub(crate) layers: Vec<Vec<u8>>,
}

impl Image {
    pub(crate) fn new(layers: &[(Vec<u8>, Vec<u8>)]) -> Self {
        Self::for_architecture("amd64", layers)
    }

    pub(crate) fn for_architecture(architecture: &str, layers: &[(Vec<u8>, Vec<u8>)]) -> Self {
        let diff_ids: Vec<String> = layers
            .iter()
            .map(|(tar, _)| format!("\"{}\"", Digest::of(tar)))
            .collect();
        let config = format!(
            r#"{{"architecture":"{architecture}","os":"linux","config":{{"Cmd":["sh"],"User":"7"}},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
            diff_ids.join(",")
        );
        let described: Vec<String> = layers
            .iter()
            .map(|(_, stored)| typed(stored, "layer.v1.tar+gzip"))
            .collect();
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{},"layers":[{}]}}"#,
            typed(config.as_bytes(), "config.v1+json"),
            described.join(",")
        );
        let layers = layers.iter().map(|(_, stored)| stored.clone()).collect();
        Self {
            config,
            manifest,
            layers,
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(self.manifest.as_bytes())
    }

    /// Files of a layout with this image alone.
    pub(crate) fn layout(&self) -> BTreeMap<String, Vec<u8>> {
        layout(&index(&[self.entry("")]), &[self])
    }

    /// Its line in an index, with more said of it.
    pub(crate) fn entry(&self, more: &str) -> String {
        let line = typed(self.manifest.as_bytes(), "manifest.v1+json");
        line.replacen('{', &format!("{{{more}"), 1)
    }

    /// Files of a `docker save` archive.
    pub(crate) fn saved(&self) -> Vec<(String, Vec<u8>)> {
        let id = Digest::of(self.config.as_bytes()).hex();
        let mut files = Vec::new();
        let mut names = Vec::new();
        for layer in &self.layers {
            let name = format!("{}/layer.tar", Digest::of(layer).hex());
            names.push(format!("\"{name}\""));
            files.push((name, layer.clone()));
        }
        files.push((format!("{id}.json"), self.config.clone().into_bytes()));
        let manifest = format!(
            r#"[{{"Config":"{id}.json","RepoTags":["saved:1"],"Layers":[{}]}}]"#,
            names.join(",")
        );
        files.push(("manifest.json".into(), manifest.into_bytes()));
        files
    }
}

pub(crate) fn descriptor(bytes: &[u8]) -> String {
    format!(
        r#"{{"digest":"{}","size":{}}}"#,
        Digest::of(bytes),
        bytes.len()
    )
}

fn typed(bytes: &[u8], media_type: &str) -> String {
    let said = format!(r#"{{"mediaType":"application/vnd.oci.image.{media_type}","#);
    descriptor(bytes).replacen('{', &said, 1)
}

pub(crate) fn index(entries: &[String]) -> String {
    format!(
        r#"{{"schemaVersion":2,"manifests":[{}]}}"#,
        entries.join(",")
    )
}

pub(crate) fn layout(index: &str, images: &[&Image]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::from([
        (
            "oci-layout".to_owned(),
            br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
        ),
        ("index.json".to_owned(), index.as_bytes().to_vec()),
    ]);
    for image in images {
        let small = [image.manifest.as_bytes(), image.config.as_bytes()];
        for blob in small
            .into_iter()
            .chain(image.layers.iter().map(Vec::as_slice))
        {
            files.insert(
                format!("blobs/sha256/{}", Digest::of(blob).hex()),
                blob.to_vec(),
            );
        }
    }
    files
}

/// A layout or archive as one tar.
pub(crate) fn archive<'a>(files: impl IntoIterator<Item = (&'a String, &'a Vec<u8>)>) -> Vec<u8> {
    let files: Vec<(&str, &[u8])> = files
        .into_iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect();
    tar_of(&files)
}
