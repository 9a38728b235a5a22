//! Pulls from a real registry, by policy.

use std::sync::Mutex;
use std::time::Duration;

use vk_image::{
    Credential, Error, Keychain, Origin, Password, Platform, Progress, PullPolicy, Puller,
    Reference,
};
use vk_oci::{Client, Config, Failure};

use crate::make::{Image, gzip, tar};
use crate::programs::Registry;
use crate::{Bench, holds};

use PullPolicy::{Always, IfNotPresent, Never};

pub(crate) fn puller(bench: &Bench, keychain: Keychain) -> Puller {
    let config = Config {
        keychain,
        attempts: 2,
        back_off: Duration::from_millis(1),
        ..Config::default()
    };
    Puller::new(
        bench.store.clone(),
        Client::new(config).unwrap(),
        Platform::default(),
    )
}

fn image(content: &str) -> Image {
    let lower = tar(&[("lower", "the lower layer"), ("gone", "x")]);
    let upper = tar(&[("upper", content), (".wh.gone", "")]);
    Image::new(&[(lower.clone(), gzip(&lower)), (upper.clone(), gzip(&upper))])
}

pub(crate) fn name(registry: &Registry, name: &str) -> Reference {
    format!("{}/{name}", registry.host).parse().unwrap()
}

pub(crate) fn quiet(_: Progress) {}

#[tokio::test]
async fn an_image_is_pulled_once_and_then_taken_from_the_store() {
    let Some(mut registry) = Registry::open() else {
        return;
    };
    let (bench, first) = (Bench::new(), image("first"));
    let puller = puller(&bench, Keychain::default());
    registry.push(&first, "group/app:1", "oci");
    let name = name(&registry, "group/app:1");
    let error = puller.get(&name, &[Never], &quiet).await.unwrap_err();
    assert!(error.to_string().contains("no such image"), "{error}");
    let steps = Mutex::new(Vec::new());
    let outcome = puller
        .get(&name, &[IfNotPresent], &|step| {
            steps.lock().unwrap().push(step)
        })
        .await
        .unwrap();
    assert!(outcome.fetched && holds(outcome.lease.disk(), b"first"));
    let record = outcome.lease.record();
    assert_eq!(
        (record.digest, record.origin),
        (first.digest(), Origin::Pulled)
    );
    assert_eq!(record.run.user, "7");
    let steps = steps.into_inner().unwrap();
    assert!(
        matches!(steps.first(), Some(Progress::Pulling { .. })),
        "{steps:?}"
    );
    assert_eq!(steps.last(), Some(&Progress::Building { layers: 2 }));
    assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    for policies in [&[Always][..], &[IfNotPresent], &[Never]] {
        assert!(
            !puller.get(&name, policies, &quiet).await.unwrap().fetched,
            "{policies:?}"
        );
    }
    registry.stop();
    assert!(
        !puller
            .get(&name, &[IfNotPresent], &quiet)
            .await
            .unwrap()
            .fetched
    );
    let error = puller.get(&name, &[Always], &quiet).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let noted = Mutex::new(Vec::new());
    let note = |step| noted.lock().unwrap().push(step);
    let outcome = puller
        .get(&name, &[Always, IfNotPresent], &note)
        .await
        .unwrap();
    assert_eq!(outcome.policy, IfNotPresent);
    let noted = noted.into_inner().unwrap();
    assert!(
        matches!(
            &noted[1],
            Progress::NextPolicy {
                failed: Always,
                next: IfNotPresent,
                ..
            }
        ),
        "{noted:?}"
    );
}

#[tokio::test]
async fn a_tag_that_moved_is_seen_by_always_alone() {
    let Some(registry) = Registry::open() else {
        return;
    };
    let bench = Bench::new();
    let puller = puller(&bench, Keychain::default());
    let name = name(&registry, "app:latest");
    registry.push(&image("first"), "app:latest", "oci");
    let first = puller.get(&name, &[Always], &quiet).await.unwrap();
    registry.push(&image("second"), "app:latest", "oci");
    let same = puller.get(&name, &[IfNotPresent], &quiet).await.unwrap();
    assert_eq!(same.lease.record().digest, first.lease.record().digest);
    let second = puller.get(&name, &[Always], &quiet).await.unwrap();
    assert!(second.fetched && holds(second.lease.disk(), b"second"));
    // The digest still leads to the first, which is here.
    let pinned = name.at(first.lease.record().digest);
    let outcome = puller.get(&pinned, &[Always], &quiet).await.unwrap();
    assert!(!outcome.fetched && holds(outcome.lease.disk(), b"first"));
}

#[tokio::test]
async fn an_imported_name_is_no_registrys_but_for_who_asks_for_that() {
    let Some(registry) = Registry::open() else {
        return;
    };
    let bench = Bench::new();
    let name = name(&registry, "app:latest");
    registry.push(&image("of the registry"), "app:latest", "oci");
    let own = tar(&[("own", "of the operator")]);
    bench
        .store
        .import_stream(&own[..], &name.to_string(), &Platform::default())
        .unwrap();
    let puller = puller(&bench, Keychain::default());
    let here = puller.get(&name, &[Always], &quiet).await.unwrap();
    assert!(here.imported && holds(here.lease.disk(), b"of the operator"));
    let puller = puller.past_imports();
    let pulled = puller.get(&name, &[Always], &quiet).await.unwrap();
    assert!(!pulled.imported && holds(pulled.lease.disk(), b"of the registry"));
}

/// Registries of the older form of manifests serve the same images.
#[tokio::test]
async fn dockers_manifests_are_pulled_too() {
    let Some(registry) = Registry::open() else {
        return;
    };
    let bench = Bench::new();
    registry.push(&image("docker-form"), "app:1", "v2s2");
    let outcome = puller(&bench, Keychain::default())
        .get(&name(&registry, "app:1"), &[Always], &quiet)
        .await;
    assert!(holds(outcome.unwrap().lease.disk(), b"docker-form"));
}

/// CRED-08
#[tokio::test]
async fn a_private_image_is_pulled_with_its_credential_alone() {
    let Some(registry) = Registry::closed() else {
        return;
    };
    let bench = Bench::new();
    registry.push(&image("private"), "group/app:1", "oci");
    let name = name(&registry, "group/app:1");
    let keychain = |password: &str| {
        let mut keychain = Keychain::default();
        let password = Password::new(password.into());
        keychain.add(
            &registry.host,
            Credential {
                username: "user".into(),
                password,
            },
        );
        keychain
    };
    for keychain in [Keychain::default(), keychain("wrong")] {
        let error = puller(&bench, keychain)
            .get(&name, &[Always], &quiet)
            .await
            .unwrap_err();
        assert!(
            matches!(&error, Error::Pull(error) if error.failure() == Failure::Access),
            "{error}"
        );
    }
    let outcome = puller(&bench, keychain("s3cret"))
        .get(&name, &[Always], &quiet)
        .await
        .unwrap();
    assert!(holds(outcome.lease.disk(), b"private"));
}

/// FAIL-33
#[tokio::test]
async fn an_image_that_is_not_there_is_said_to_be_missing() {
    let Some(registry) = Registry::open() else {
        return;
    };
    let bench = Bench::new();
    let error = puller(&bench, Keychain::default())
        .get(&name(&registry, "absent:1"), &[Always], &quiet)
        .await;
    let error = error.unwrap_err();
    assert!(
        matches!(&error, Error::Pull(error) if error.failure() == Failure::Missing),
        "{error}"
    );
    assert!(
        error.to_string().contains("absent:1") && !error.is_transient(),
        "{error}"
    );
    assert!(bench.leftovers().is_empty() && bench.names().is_empty());
}

#[tokio::test]
async fn of_two_that_want_the_same_image_one_fetches_it() {
    let Some(registry) = Registry::open() else {
        return;
    };
    let bench = Bench::new();
    registry.push(&image("shared"), "app:1", "oci");
    let name = name(&registry, "app:1");
    let (one, other) = (
        puller(&bench, Keychain::default()),
        puller(&bench, Keychain::default()),
    );
    let (one, other) = tokio::join!(
        one.get(&name, &[Always], &quiet),
        other.get(&name, &[Always], &quiet)
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(one.fetched || other.fetched);
    assert_eq!(one.lease.disk(), other.lease.disk());
    assert!(bench.leftovers().is_empty());
}

#[tokio::test]
async fn a_fetch_that_was_broken_off_leaves_its_layers_for_the_next() {
    let Some(registry) = Registry::open() else {
        return;
    };
    let bench = Bench::new();
    let image = image("taken-up");
    registry.push(&image, "app:1", "oci");
    // What a killed process left: one layer whole, one half.
    let dir = bench.path("store/downloads").join(image.digest().hex());
    std::fs::create_dir_all(&dir).unwrap();
    for (layer, length) in [
        (&image.layers[0], image.layers[0].len()),
        (&image.layers[1], 10),
    ] {
        std::fs::write(
            dir.join(vk_image::Digest::of(layer).hex()),
            &layer[..length],
        )
        .unwrap();
    }
    let outcome = puller(&bench, Keychain::default())
        .get(&name(&registry, "app:1"), &[Always], &quiet)
        .await;
    assert!(holds(outcome.unwrap().lease.disk(), b"taken-up"));
    assert!(bench.leftovers().is_empty());
}
