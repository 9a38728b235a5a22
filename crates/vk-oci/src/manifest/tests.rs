use super::*;
use crate::config::{ImageConfig, RunConfig};

fn digest(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string()
}

fn index_of(platforms: &[&str]) -> Vec<u8> {
    let entries: Vec<String> = platforms
        .iter()
        .map(|text| {
            let platform: Platform = text.parse().unwrap();
            let platform = serde_json::to_string(&platform).unwrap();
            format!(
                r#"{{"digest":"{}","size":5,"platform":{platform}}}"#,
                digest(text)
            )
        })
        .collect();
    format!(
        r#"{{"schemaVersion":2,"manifests":[{}]}}"#,
        entries.join(",")
    )
    .into_bytes()
}

#[test]
fn an_index_gives_the_platform_asked_for() {
    let index = Index::parse(&index_of(&[
        "linux/arm64/v8",
        "linux/amd64",
        "unknown/unknown",
    ]))
    .unwrap();
    let chosen = index.choose(&Platform::default()).unwrap();
    assert_eq!(chosen.digest.to_string(), digest("linux/amd64"));
    let arm = index.choose(&"linux/arm64".parse().unwrap()).unwrap();
    assert_eq!(arm.digest.to_string(), digest("linux/arm64/v8"));
    assert_eq!(index.choose(&"linux/s390x".parse().unwrap()), None);
    assert_eq!(index.platforms(), ["linux/arm64/v8", "linux/amd64"]);
}

#[test]
fn a_manifest_is_read_with_its_layers_in_order() {
    let text = format!(
        r#"{{"schemaVersion":2,"config":{{"digest":"{}","size":2}},
            "layers":[{{"mediaType":"a","digest":"{}","size":3}},{{"digest":"{}","size":4}}]}}"#,
        digest("c"),
        digest("1"),
        digest("2")
    );
    let manifest = Manifest::parse(text.as_bytes()).unwrap();
    let layers: Vec<_> = manifest
        .layers
        .iter()
        .map(|l| (l.media_type.as_str(), l.size))
        .collect();
    assert_eq!(layers, [("a", 3), ("", 4)]);
    assert_eq!(manifest.config.digest.to_string(), digest("c"));
}

#[test]
fn a_document_of_two_meanings_or_none_is_refused() {
    let both = format!(
        r#"{{"config":{{"digest":"{0}"}},"layers":[],"manifests":[{{"digest":"{0}"}}]}}"#,
        digest("x")
    );
    for text in [both.as_str(), "{}", r#"{"layers":[]}"#] {
        assert!(
            matches!(Document::parse(text.as_bytes()), Err(ManifestError::Kind)),
            "{text}"
        );
    }
    assert!(matches!(
        Document::parse(b"{\"schemaVersion\":1}"),
        Err(ManifestError::Schema1)
    ));
    for text in ["7", "null", "x", ""] {
        assert!(
            matches!(
                Document::parse(text.as_bytes()),
                Err(ManifestError::Json(_))
            ),
            "{text}"
        );
    }
}

#[test]
fn counts_and_sizes_are_bounded() {
    let layer = format!(r#"{{"digest":"{}","size":1}}"#, digest("l"));
    let manifest = |layers: &[&str], config_size: u64| {
        let config = format!(r#"{{"digest":"{}","size":{config_size}}}"#, digest("c"));
        let text = format!(r#"{{"config":{config},"layers":[{}]}}"#, layers.join(","));
        Manifest::parse(text.as_bytes())
    };
    assert!(manifest(&vec![layer.as_str(); limits::LAYERS], 1).is_ok());
    assert!(matches!(
        manifest(&vec![layer.as_str(); limits::LAYERS + 1], 1),
        Err(ManifestError::TooMany(_))
    ));
    assert!(matches!(
        manifest(&[], limits::CONFIG_BYTES + 1),
        Err(ManifestError::TooMany(_))
    ));
    let huge = format!(
        r#"{{"digest":"{}","size":{}}}"#,
        digest("l"),
        limits::LAYER_BYTES + 1
    );
    let large = format!(
        r#"{{"digest":"{}","size":{}}}"#,
        digest("l"),
        limits::LAYER_BYTES
    );
    assert!(manifest(&[large.as_str(); 4], 1).is_ok());
    assert!(matches!(
        manifest(&[large.as_str(); 5], 1),
        Err(ManifestError::TooMany(_))
    ));
    assert!(matches!(
        manifest(&[&huge], 1),
        Err(ManifestError::TooMany(_))
    ));
    assert!(matches!(
        manifest(&[r#"{"digest":"sha512:00","size":1}"#], 1),
        Err(ManifestError::Digest)
    ));
    let many = vec!["linux/amd64"; limits::INDEX_ENTRIES + 1];
    assert!(matches!(
        Index::parse(&index_of(&many)),
        Err(ManifestError::TooMany(_))
    ));
}

#[test]
fn a_configuration_is_read_with_nulls_and_without() {
    let text = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{"User":"app:app","Env":["A=b"],
            "Entrypoint":null,"Cmd":["sh"],"WorkingDir":"/w","ExposedPorts":{{"80/tcp":{{}}}}}},
            "rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
        digest("l")
    );
    let config = ImageConfig::parse(text.as_bytes()).unwrap();
    assert_eq!(config.platform, Platform::default());
    assert_eq!(config.run.user, "app:app");
    assert_eq!(config.run.entrypoint, Vec::<String>::new());
    assert_eq!(
        (config.run.cmd, config.run.working_dir),
        (vec!["sh".into()], "/w".into())
    );
    assert_eq!(config.run.exposed_ports, ["80/tcp"]);
    let bare = format!(
        r#"{{"config":null,"rootfs":{{"diff_ids":["{}"]}}}}"#,
        digest("l")
    );
    assert_eq!(
        ImageConfig::parse(bare.as_bytes()).unwrap().run,
        RunConfig::default()
    );
    assert!(matches!(
        ImageConfig::parse(b"{\"name\":\"chart\"}"),
        Err(ManifestError::NotAnImage)
    ));
}
