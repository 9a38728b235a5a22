//! What images may take of the disk, and what goes where it is too much.

use std::fs;

use vk_image::{
    Bounds, Digest, Error, Keychain, Lease, Platform, PullPolicy, Reference, Short, Store,
};

use crate::Bench;
use crate::make::{Image, gzip, tar, tar_of};
use crate::programs::Registry;
use crate::pulling::{name, puller, quiet};

/// What sizes here are told in.
const UNIT: u64 = 64 << 10;

/// An image whose disk has so many units, of a byte that compresses well.
fn image_of(units: u64, byte: u8) -> Image {
    let content = vec![byte; usize::try_from(units * UNIT).unwrap()];
    let layer = tar_of(&[("content", &content)]);
    Image::new(&[(layer.clone(), gzip(&layer))])
}

/// A layer of so many units that no compression makes smaller.
fn noise(units: u64) -> Vec<u8> {
    let content: Vec<u8> = (0..units * UNIT / 32)
        .flat_map(|at| Digest::of(&at.to_be_bytes()).bytes().to_owned())
        .collect();
    tar_of(&[("content", &content)])
}

fn bounded(image: u64, total: u64) -> Bench {
    let mut bench = Bench::new();
    let (image, total) = (image * UNIT, total * UNIT);
    bench.store = bench.store.clone().bounded(Bounds { image, total });
    bench
}

async fn pull(bench: &Bench, name: &Reference) -> Result<Lease, Error> {
    let puller = puller(bench, Keychain::default());
    let got = puller.get(name, &[PullPolicy::Always], &quiet).await?;
    Ok(got.lease)
}

fn images(bench: &Bench) -> usize {
    fs::read_dir(bench.path("store/images")).unwrap().count()
}

#[test]
fn a_layer_that_unpacks_to_more_than_an_image_may_hold_ends_there_and_leaves_nothing() {
    let bench = bounded(4, 1 << 20);
    let content = vec![b'x'; 4 << 20];
    let bomb = gzip(&tar_of(&[("a", b"1"), ("content", &content)]));
    assert!(bomb.len() < 64 << 10, "as it is sent it is small");
    let platform = Platform::default();
    let error = bench.store.import_stream(&bomb[..], "bomb", &platform);
    let error = error.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
    let said = error.to_string();
    assert!(
        said.contains("bomb")
            && said.contains("262144 bytes")
            && said.contains("[images] max_image"),
        "{said}"
    );
    // Of many layers, none too large alone.
    let layers = [1, 2, 3].map(|byte| {
        let content = vec![byte; 128 << 10];
        let layer = tar_of(&[("content", &content)]);
        (layer.clone(), gzip(&layer))
    });
    let saved = Image::new(&layers).saved();
    let files: Vec<_> = saved.iter().map(|(n, b)| (n.as_str(), &b[..])).collect();
    let error = bench
        .store
        .import_stream(&tar_of(&files)[..], "sum", &platform);
    let error = error.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
    assert!(bench.leftovers().is_empty() && images(&bench) == 0);
    let small = gzip(&tar(&[("a", "small")]));
    bench
        .store
        .import_stream(&small[..], "small", &platform)
        .unwrap();
}

#[tokio::test]
async fn layers_that_are_announced_too_large_are_not_fetched_at_all() {
    let Some(registry) = Registry::open() else {
        return;
    };
    let bench = bounded(1, 1 << 20);
    // Its announced size alone says it.
    let layer = noise(4);
    registry.push(&Image::new(&[(layer.clone(), layer)]), "big:1", "oci");
    let error = pull(&bench, &name(&registry, "big:1")).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
    assert!(bench.leftovers().is_empty() && images(&bench) == 0);
    registry.push(&image_of(3, b'x'), "bomb:1", "oci");
    let error = pull(&bench, &name(&registry, "bomb:1")).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
    assert!(!error.is_transient());
    assert!(bench.leftovers().is_empty() && images(&bench) == 0);
}

#[tokio::test]
async fn a_pull_without_room_takes_that_of_the_image_used_longest_ago() {
    let Some(registry) = Registry::open() else {
        return;
    };
    let bench = bounded(64, 30);
    let names = ["a", "b", "c", "d"].map(|one| name(&registry, one));
    for (byte, name) in names.iter().enumerate() {
        let image = image_of(8, u8::try_from(byte + 1).unwrap());
        registry.push(&image, name.repository(), "oci");
    }
    let [a, b, c, d] = &names;
    let imported = bench.image("mine", "imported").record().digest;
    drop(pull(&bench, a).await.unwrap());
    let used = pull(&bench, b).await.unwrap();
    drop(pull(&bench, c).await.unwrap());
    // The first is used again: the second would be next, but a job has it.
    drop(pull(&bench, a).await.unwrap());
    assert_eq!(images(&bench), 4);
    drop(pull(&bench, d).await.unwrap());
    let left = bench.store.list().unwrap();
    let has = |name: &Reference| left.iter().any(|one| one.names.contains(name));
    assert!(has(a) && has(b) && has(d) && !has(c), "{:?}", bench.names());
    assert!(left.iter().any(|one| one.record.digest == imported));
    assert!(used.disk().exists() && bench.leftovers().is_empty());
}

#[tokio::test]
async fn a_pull_fails_where_what_may_go_is_not_enough() {
    let Some(registry) = Registry::open() else {
        return;
    };
    let bench = bounded(64, 20);
    registry.push(&image_of(8, 1), "a:1", "oci");
    registry.push(&image_of(16, 2), "b:1", "oci");
    let used = pull(&bench, &name(&registry, "a:1")).await.unwrap();
    let error = pull(&bench, &name(&registry, "b:1")).await.unwrap_err();
    let Error::NoRoom { short, .. } = &error else {
        panic!("{error}")
    };
    assert!(matches!(short, Short::Total { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("[images] max_total"), "{said}");
    assert!(bench.leftovers().is_empty() && used.disk().exists());
    // What nobody uses makes room.
    drop(used);
    pull(&bench, &name(&registry, "b:1")).await.unwrap();
    assert_eq!(images(&bench), 1);
}

/// Whoever announces much has nothing of others removed for it.
#[tokio::test]
async fn an_image_that_finds_no_room_in_any_case_costs_no_other_its_place() {
    let Some(registry) = Registry::open() else {
        return;
    };
    let bench = bounded(64, 20);
    registry.push(&image_of(4, 1), "a:1", "oci");
    registry.push(&image_of(4, 2), "b:1", "oci");
    let layer = noise(40);
    registry.push(&Image::new(&[(layer.clone(), layer)]), "large:1", "oci");
    for of_others in ["a:1", "b:1"] {
        drop(pull(&bench, &name(&registry, of_others)).await.unwrap());
    }
    let error = pull(&bench, &name(&registry, "large:1")).await.unwrap_err();
    assert!(matches!(error, Error::NoRoom { .. }), "{error:?}");
    assert_eq!(images(&bench), 2);
    assert!(bench.leftovers().is_empty());
}

#[tokio::test]
async fn a_store_that_has_too_much_settles_and_a_dry_run_says_what_goes() {
    let Some(registry) = Registry::open() else {
        return;
    };
    let bench = Bench::new();
    for (byte, at) in [(1, "a:1"), (2, "b:1")] {
        registry.push(&image_of(8, byte), at, "oci");
        drop(pull(&bench, &name(&registry, at)).await.unwrap());
    }
    drop(bench.image("mine", "imported"));
    assert_eq!(bench.store.settle().unwrap().images, 0, "there is no bound");
    let of = |total| {
        let store = Store::open(&bench.path("store")).unwrap();
        let image = total;
        store.bounded(Bounds { image, total })
    };
    let would = of(10 * UNIT).unwanted(vk_image::Keep::default()).unwrap();
    assert_eq!((would.images, images(&bench)), (1, 3));
    assert_eq!(of(10 * UNIT).settle().unwrap(), would);
    let left = bench.names().join(" ");
    assert!(left.contains("b:1") && !left.contains("a:1"), "{left}");
    // Imported ones stay, however little there may be.
    assert_eq!(of(1).settle().unwrap().images, 1);
    assert_eq!(bench.names(), ["mine:latest"]);
}
