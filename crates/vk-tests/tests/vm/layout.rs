//! Layers to an OCI layout, for `vk image import`.

use std::fs;
use std::path::Path;

use vk_tests::inode::hex;

const TYPES: &str = "application/vnd.oci.image";

/// A layer as it is stored.
pub(crate) enum Stored<'a> {
    Plain(&'a [u8]),
    Gzip(&'a [u8]),
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref())
}

/// Writes an image of these layers, the lowest first, to a new directory.
pub(crate) fn write(dir: &Path, layers: &[Stored<'_>]) {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |bytes: &[u8], media: &str| {
        let digest = sha256_hex(bytes);
        fs::write(blobs.join(&digest), bytes).unwrap();
        serde_json::json!({
            "mediaType": format!("{TYPES}.{media}"),
            "digest": format!("sha256:{digest}"),
            "size": bytes.len(),
        })
    };
    let mut diff_ids = Vec::new();
    let mut described = Vec::new();
    for layer in layers {
        let (Stored::Plain(tar) | Stored::Gzip(tar)) = layer;
        diff_ids.push(format!("sha256:{}", sha256_hex(tar)));
        described.push(match layer {
            Stored::Plain(tar) => blob(tar, "layer.v1.tar"),
            Stored::Gzip(tar) => blob(&gzip(tar), "layer.v1.tar+gzip"),
        });
    }
    let config = serde_json::json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let config = blob(config.to_string().as_bytes(), "config.v1+json");
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": format!("{TYPES}.manifest.v1+json"),
        "config": config,
        "layers": described,
    });
    let manifest = blob(manifest.to_string().as_bytes(), "manifest.v1+json");
    let index = serde_json::json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(dir.join("index.json"), index.to_string()).unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}
