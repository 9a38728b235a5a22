//! Names, leases, removal, collection, and stores that were left in the middle of something.

use std::fs;
use std::time::Duration;

use vk_image::{Collected, Error, Keep, Store};

use crate::Bench;

#[test]
fn a_name_moves_and_its_old_image_goes_at_the_next_collection() {
    let bench = Bench::new();
    drop(bench.image("a", "first"));
    let second = bench.image("a", "second");
    assert_eq!(bench.store.list().unwrap().len(), 2);
    let would = bench.store.unwanted(Keep::default()).unwrap();
    assert_eq!(bench.store.list().unwrap().len(), 2);
    assert_eq!(
        bench.store.lease("a").unwrap().record().digest,
        second.record().digest
    );
    let collected = bench.store.collect(Keep::default()).unwrap();
    assert_eq!((collected.images, would), (1, collected));
    assert!(collected.bytes >= 4096);
    assert_eq!(bench.names(), ["a:latest"]);
    assert_eq!(
        bench.store.collect(Keep::default()).unwrap(),
        Collected::default()
    );
}

#[test]
fn an_image_in_use_is_neither_removed_nor_collected() {
    let bench = Bench::new();
    let lease = bench.image("a", "first");
    let disk = lease.disk().to_owned();
    assert!(bench.store.inspect("a").unwrap().in_use);
    let error = bench.store.remove("a").unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert_eq!(bench.names(), ["a:latest"], "the name stays too");
    // A name moved away leaves it without one: still in use.
    drop(bench.image("a", "second"));
    assert_eq!(bench.store.collect(Keep::default()).unwrap().images, 0);
    assert!(disk.exists());
    // Another process' eyes: a store opened anew clears nothing away either.
    Store::open(&bench.path("store"))
        .unwrap()
        .collect(Keep::default())
        .unwrap();
    assert!(disk.exists());
    drop(lease);
    assert_eq!(bench.store.collect(Keep::default()).unwrap().images, 1);
    assert!(!disk.exists());
}

#[test]
fn the_last_name_takes_the_image_along_and_a_digest_takes_all() {
    let bench = Bench::new();
    let digest = bench.image("a", "one").record().digest;
    drop(bench.image("b", "one"));
    bench.store.remove("a").unwrap();
    assert_eq!(bench.names(), ["b:latest"]);
    bench.store.remove("b").unwrap();
    assert!(bench.store.list().unwrap().is_empty());
    drop((bench.image("a", "one"), bench.image("b", "one")));
    bench.store.remove(&digest.to_string()).unwrap();
    assert!(bench.store.list().unwrap().is_empty() && bench.names().is_empty());
    assert!(bench.leftovers().is_empty());
    let error = bench.store.remove("a").unwrap_err().to_string();
    assert!(
        error.contains("vk image pull a") && error.contains("vk image import"),
        "{error}"
    );
}

#[test]
fn an_image_is_found_by_every_spelling_of_its_name_and_by_digest() {
    let bench = Bench::new();
    let digest = bench.image("debian:12", "one").record().digest;
    for name in [
        "debian:12",
        "docker.io/library/debian:12",
        &digest.to_string(),
    ] {
        assert_eq!(
            bench.store.lease(name).unwrap().record().digest,
            digest,
            "{name}"
        );
        assert_eq!(bench.store.inspect(name).unwrap().names.len(), 1);
    }
    assert!(matches!(
        bench.store.lease("debian"),
        Err(Error::NoSuchImage { .. })
    ));
    assert!(matches!(bench.store.lease("Bad Name"), Err(Error::Name(_))));
}

#[test]
fn imported_images_with_a_name_are_kept_however_old() {
    let bench = Bench::new();
    drop(bench.image("a", "one"));
    let keep = Keep {
        used_within: Some(Duration::ZERO),
    };
    assert_eq!(bench.store.collect(keep).unwrap().images, 0);
}

#[test]
fn what_a_dead_process_was_making_is_cleared_away() {
    let bench = Bench::new();
    let build = bench.path("store/build/build-dead");
    fs::create_dir(&build).unwrap();
    fs::write(build.join("image.erofs"), "half").unwrap();
    let removed = bench.path("store/build/removed-dead");
    fs::create_dir(&removed).unwrap();
    Store::open(&bench.path("store")).unwrap();
    assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
}

#[test]
fn what_a_living_process_is_making_is_left() {
    let bench = Bench::new();
    // A stream that ends only after the store was opened a second time.
    let tar = crate::make::tar(&[("file", "slow")]);
    let reader = OpensTheStore {
        inner: &tar,
        at: Some(bench.path("store")),
    };
    let lease = bench
        .store
        .import_stream(reader, "slow", &vk_image::Platform::default())
        .unwrap();
    assert!(crate::holds(lease.disk(), b"slow"));
}

struct OpensTheStore<'a> {
    inner: &'a [u8],
    at: Option<std::path::PathBuf>,
}

impl std::io::Read for OpensTheStore<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if let Some(at) = self.at.take() {
            Store::open(&at).unwrap().collect(Keep::default()).unwrap();
        }
        self.inner.read(buffer)
    }
}

#[test]
fn nothing_is_removed_while_a_part_of_the_store_cannot_be_read() {
    let bench = Bench::new();
    let disk = bench.image("a", "one").disk().to_owned();
    let names = bench.path("store/names.json");
    let good = fs::read(&names).unwrap();
    for bad in [&b"{"[..], br#"{"version":2,"names":{}}"#, b""] {
        fs::write(&names, bad).unwrap();
        for error in [
            bench.store.collect(Keep::default()).unwrap_err(),
            bench.store.remove("a").unwrap_err(),
            bench.store.lease("a").unwrap_err(),
        ] {
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
            assert!(error.to_string().contains("names.json"), "{error}");
        }
    }
    fs::write(&names, good).unwrap();
    let stray = bench.path("store/images/stray");
    fs::write(&stray, "").unwrap();
    drop(bench.image("a", "two"));
    let error = bench.store.collect(Keep::default()).unwrap_err();
    assert!(error.to_string().contains("stray"), "{error}");
    assert!(disk.exists());
    fs::remove_file(stray).unwrap();
    bench.store.collect(Keep::default()).unwrap();
    assert!(!disk.exists());
}

#[test]
fn many_threads_import_remove_and_lease_without_harm() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..8 {
                    let content = format!("content-{}", (thread + round) % 3);
                    let lease = bench.image(&format!("name{}", round % 2), &content);
                    assert!(crate::holds(lease.disk(), content.as_bytes()));
                    bench.store.collect(Keep::default()).unwrap();
                    assert!(crate::holds(lease.disk(), content.as_bytes()));
                    match bench.store.remove(&format!("name{}", (round + 1) % 2)) {
                        Ok(()) | Err(Error::NoSuchImage { .. } | Error::InUse { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    bench.store.list().unwrap();
    assert!(bench.leftovers().is_empty());
}
