//! Files of every kind, whole and broken.

use std::collections::BTreeMap;
use std::fs;

use vk_image::{Digest, Error, Origin, Platform};

use crate::make::{self, Image, archive, gzip, index, layout, tar, zstd};
use crate::{Bench, holds};

type Files = BTreeMap<String, Vec<u8>>;

fn platform() -> Platform {
    Platform::default()
}

/// Two layers: the upper one takes a file of the lower one away.
fn image() -> Image {
    let lower = tar(&[("gone", "lower-gone"), ("kept", "lower-kept")]);
    let upper = tar(&[(".wh.gone", ""), ("new", "upper-new")]);
    Image::new(&[(lower.clone(), gzip(&lower)), (upper.clone(), zstd(&upper))])
}

#[test]
fn a_root_file_system_is_imported_plain_and_compressed() {
    let bench = Bench::new();
    let tar = tar(&[
        ("etc/hostname", "a name of its own"),
        (".wh.literal", "kept-as-it-is"),
    ]);
    let plain = bench
        .store
        .import(&bench.file("plain", &tar), "a", &platform())
        .unwrap();
    assert!(holds(plain.disk(), b"a name of its own") && holds(plain.disk(), b"kept-as-it-is"));
    assert_eq!(plain.record().origin, Origin::Imported);
    assert_eq!(plain.record().platform, platform());
    for (name, bytes) in [("b", gzip(&tar)), ("c:1", zstd(&tar))] {
        let lease = bench
            .store
            .import(&bench.file("packed", &bytes), name, &platform())
            .unwrap();
        assert_eq!(
            lease.record().digest,
            plain.record().digest,
            "the same content is the same image"
        );
    }
    let piped = bench
        .store
        .import_stream(&gzip(&tar)[..], "d", &platform())
        .unwrap();
    assert_eq!(piped.record().digest, plain.record().digest);
    assert_eq!(bench.names(), ["a:latest", "b:latest", "c:1", "d:latest"]);
    assert_eq!(bench.store.list().unwrap().len(), 1);
    drop((plain, piped));
    assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
}

#[test]
fn a_layout_is_imported_from_a_directory_and_from_a_tar() {
    let bench = Bench::new();
    let image = image();
    let files = image.layout();
    for (name, bytes) in &files {
        let path = bench.path("layout").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let tar = archive(&files);
    let paths = [
        bench.path("layout"),
        bench.file("a.tar", &tar),
        bench.file("a.tgz", &gzip(&tar)),
    ];
    for (number, path) in paths.iter().enumerate() {
        let lease = bench
            .store
            .import(path, &format!("a:{number}"), &platform())
            .unwrap();
        assert_eq!(lease.record().digest, image.digest());
        assert_eq!(
            (&lease.record().run.cmd[..], &lease.record().run.user[..]),
            (&["sh".into()][..], "7")
        );
        assert!(holds(lease.disk(), b"upper-new") && holds(lease.disk(), b"lower-kept"));
    }
    let config = bench
        .path("store/images")
        .join(image.digest().hex())
        .join("config.json");
    assert_eq!(fs::read_to_string(config).unwrap(), image.config);
}

#[test]
fn a_docker_archive_is_imported_links_between_its_layers_too() {
    let bench = Bench::new();
    let layer = tar(&[("file", "docker-content")]);
    let image = Image::new(&[(layer.clone(), layer)]);
    let saved = image.saved();
    let bytes = archive(saved.iter().map(|(name, bytes)| (name, bytes)));
    let lease = bench
        .store
        .import(&bench.file("saved.tar", &bytes), "a", &platform())
        .unwrap();
    assert!(holds(lease.disk(), b"docker-content"));
    assert_eq!(lease.record().digest, Digest::of(image.config.as_bytes()));
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in &saved {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        if name.ends_with("layer.tar") {
            let other = format!("{}/layer.tar", "ab".repeat(32));
            builder
                .append_data(&mut header, &other, &content[..])
                .unwrap();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            builder
                .append_link(&mut header, name, format!("../{other}"))
                .unwrap();
        } else {
            builder
                .append_data(&mut header, name, &content[..])
                .unwrap();
        }
    }
    let linked = bench.file("linked.tar", &builder.into_inner().unwrap());
    let again = bench.store.import(&linked, "b", &platform()).unwrap();
    assert_eq!(again.record().digest, lease.record().digest);
}

#[test]
fn an_index_gives_the_image_for_the_platform() {
    let bench = Bench::new();
    let layer = |text: &str| {
        let tar = tar(&[("file", text)]);
        vec![(tar.clone(), tar)]
    };
    let (intel, arm) = (
        Image::new(&layer("for-intel")),
        Image::for_architecture("arm64", &layer("for-arm")),
    );
    let said = |architecture: &str| {
        format!(r#""platform":{{"os":"linux","architecture":"{architecture}"}},"#)
    };
    let inner = index(&[arm.entry(&said("arm64")), intel.entry(&said("amd64"))]);
    let mut files = layout(
        &index(&[make::descriptor(inner.as_bytes())]),
        &[&intel, &arm],
    );
    files.insert(
        format!("blobs/sha256/{}", Digest::of(inner.as_bytes()).hex()),
        inner.into_bytes(),
    );
    let path = bench.file("layout.tar", &archive(&files));
    assert!(holds(
        bench.store.import(&path, "a", &platform()).unwrap().disk(),
        b"for-intel"
    ));
    let arm = bench
        .store
        .import(&path, "b", &"linux/arm64".parse().unwrap())
        .unwrap();
    assert!(holds(arm.disk(), b"for-arm"));
    let error = bench
        .store
        .import(&path, "c", &"linux/s390x".parse().unwrap())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("only for linux/arm64, linux/amd64"),
        "{error}"
    );
}

fn refused(bench: &Bench, bytes: &[u8]) -> Error {
    let path = bench.file("bad", bytes);
    let error = bench.store.import(&path, "bad", &platform()).unwrap_err();
    assert!(
        bench.names().is_empty() && bench.leftovers().is_empty(),
        "{error}"
    );
    error
}

#[test]
fn layers_that_are_not_what_they_say_are_refused() {
    let bench = Bench::new();
    let good = image();
    let packed = Digest::of(&good.layers[0]).hex();
    let with = |change: &dyn Fn(&mut Files)| {
        let mut files = good.layout();
        change(&mut files);
        archive(&files)
    };
    let blob = format!("blobs/sha256/{packed}");
    let other = gzip(&tar(&[("file", "another")]));
    let replaced = with(&|files| {
        let mut other = other.clone();
        other.resize(files[&blob].len(), 0);
        files.insert(blob.clone(), other);
    });
    assert!(matches!(
        refused(&bench, &replaced),
        Error::LayerDigest { layer: 1, .. } | Error::Layer { .. }
    ));
    let shorter = with(&|files| files.get_mut(&blob).unwrap().truncate(20));
    assert!(refused(&bench, &shorter).to_string().contains("20 bytes"));
    let missing = with(&|files| drop(files.remove(&blob)));
    assert!(refused(&bench, &missing).to_string().contains("missing"));
    let manifest = format!("blobs/sha256/{}", good.digest().hex());
    let damaged = with(&|files| files.get_mut(&manifest).unwrap()[0] = b' ');
    assert!(refused(&bench, &damaged).to_string().contains("damaged"));
    // The right layer under a configuration that tells another uncompressed digest.
    let layer = tar(&[("file", "x")]);
    let lying = Image::new(&[(b"something else".to_vec(), layer)]);
    let error = refused(&bench, &archive(&lying.layout()));
    assert!(
        matches!(error, Error::LayerDigest { layer: 1, .. }),
        "{error}"
    );
}

#[test]
fn what_is_no_image_is_refused_with_what_it_is() {
    let bench = Bench::new();
    let text = |error: Error| {
        let source = std::error::Error::source(&error)
            .map(ToString::to_string)
            .unwrap_or_default();
        format!("{error}: {source}")
    };
    assert!(text(refused(&bench, b"no archive at all, but text")).contains("no tar archive"));
    assert!(text(refused(&bench, b"")).contains("without entries"));
    assert!(text(refused(&bench, &gzip(&[0; 1024]))).contains("without entries"));
    let mut cut = gzip(&tar(&[("file", &"content".repeat(1000))]));
    cut.truncate(cut.len() / 2);
    refused(&bench, &cut);
    let two = image();
    let named =
        |name: &str| format!(r#""annotations":{{"org.opencontainers.image.ref.name":"{name}"}},"#);
    let other = Image::new(&[]);
    let both = layout(
        &index(&[two.entry(&named("one")), other.entry(&named("two"))]),
        &[&two, &other],
    );
    assert!(text(refused(&bench, &archive(&both))).contains("2 images (one, two)"));
    let chart = make::tar_of(&[("manifest.json", &b"[]"[..])]);
    assert!(text(refused(&bench, &chart)).contains("no image"));
    let climbing = make::tar_of(&[(
        "manifest.json",
        &br#"[{"Config":"../../etc/passwd","Layers":[]}]"#[..],
    )]);
    assert!(text(refused(&bench, &climbing)).contains("missing"));
}

#[test]
fn bad_names_and_paths_are_refused_before_anything_is_read() {
    let bench = Bench::new();
    let path = bench.file("a", &tar(&[("file", "x")]));
    let import = |name: &str| bench.store.import(&path, name, &platform()).unwrap_err();
    assert!(matches!(import("Bad Name"), Error::Name(_)));
    assert!(matches!(
        import(&format!("a@{}", Digest::of(b""))),
        Error::NameWithDigest { .. }
    ));
    let error = bench
        .store
        .import(&bench.path("absent"), "a", &platform())
        .unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
    let error = bench
        .store
        .import(bench.dir.path(), "a", &platform())
        .unwrap_err();
    assert!(error.to_string().contains("tar -C"), "{error}");
}
