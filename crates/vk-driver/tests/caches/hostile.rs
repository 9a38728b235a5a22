//! Caches that were made to do harm: right by their digests, wrong by what is in them.

use serde_json::json;
use vk_hub_proto::job::FailureClass;
use vk_oci::{Client, Config, Digest, Reference};

use crate::{Bench, assert_says, cache, cached};

/// Puts a layer under the tag that the last save of the bench went to.
async fn replace(bench: &Bench, tag: &str, layer: &[u8]) {
    let at = format!("{}/vk/ci-cache/127.0.0.1-9/3:{tag}", bench.registry.host);
    let at: Reference = at.parse().unwrap();
    let client = Client::new(Config::default()).unwrap();
    client.push_small(&at, b"{}").await.unwrap();
    client.push_small(&at, layer).await.unwrap();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.vk.ci-cache.v1",
        "config": {
            "mediaType": "application/vnd.oci.empty.v1+json",
            "digest": Digest::of(b"{}").to_string(), "size": 2
        },
        "layers": [{
            "mediaType": "application/vnd.vk.ci-cache.layer.v1.tar+zstd",
            "digest": Digest::of(layer).to_string(), "size": layer.len()
        }]
    });
    let bytes = serde_json::to_vec(&manifest).unwrap();
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    client.push_manifest(&at, media_type, &bytes).await.unwrap();
}

/// An archive of these entries: a name, and a file's content or a link's target.
fn tar(entries: &[(&str, tar::EntryType, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, kind, text) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        let content: &[u8] = match kind {
            tar::EntryType::Symlink => {
                header.set_link_name(text).unwrap();
                &[]
            }
            _ => text.as_bytes(),
        };
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// CACHE-19
#[tokio::test]
async fn a_restore_that_broke_the_tree_ends_the_job_and_nothing_leaves_the_tree() {
    use tar::EntryType::{Regular, Symlink};
    let Some(bench) = Bench::new() else { return };
    bench
        .good(cached(&["mkdir deps && echo x > deps/a"], cache("k")))
        .await;
    let asked = bench.registry.asked();
    let tag = asked.last().unwrap().rsplit('/').next().unwrap().to_owned();
    let fine = ("deps/a", Regular, "of the cache");
    let mut lying = tar(&[fine]);
    // The file says more bytes than come.
    lying[124..136].copy_from_slice(b"00000777777\0");
    let climbing = tar(&[fine, ("../escaped", Regular, "x")]);
    let absolute = tar(&[fine, ("/builds/escaped", Regular, "x")]);
    let through = tar(&[("out", Symlink, "/builds"), ("out/escaped", Regular, "x")]);
    let squeezed = |tar: &[u8]| zstd::encode_all(tar, 3).unwrap();
    let cut = {
        let whole = squeezed(&tar(&[("deps/a", Regular, &"x".repeat(100_000))]));
        whole[..whole.len() - 4].to_vec()
    };
    let mut job = cached(&["echo not reached"], cache("k"));
    job["caches"][0]["policy"] = json!("pull");
    for (layer, said) in [
        (squeezed(&climbing), "an entry outside its root: ../escaped"),
        (
            squeezed(&absolute),
            "an entry outside its root: /builds/escaped",
        ),
        (squeezed(&through), "out"),
        (squeezed(&lying), ""),
        (cut, ""),
        (b"PK\x03\x04 what gitlab-runner keeps".to_vec(), ""),
    ] {
        replace(&bench, &tag, &layer).await;
        let ran = bench.run(job.clone()).await;
        let failure = ran.result.failure;
        assert_eq!(
            failure,
            Some(FailureClass::ExternalDependency),
            "{}",
            ran.output
        );
        let message = ran.result.message.clone().unwrap();
        let begin = "restoring the cache k broke the tree: ";
        assert!(
            message.starts_with(begin) && message.contains(said),
            "{message}"
        );
        assert!(!ran.output.contains("not reached"), "{}", ran.output);
    }
    // One that is whole again is restored as ever.
    replace(&bench, &tag, &squeezed(&tar(&[fine]))).await;
    job["steps"][0]["script"] = json!(["cat deps/a && [ ! -e ../escaped ] && echo"]);
    let ran = bench.good(job).await;
    assert!(ran.has("of the cache"), "{}", ran.output);
    assert_says(&ran, &["Cache hit for k: ", "of unknown age"]);
}

/// CACHE-17
#[tokio::test]
async fn content_that_is_not_its_digest_never_comes_near_the_tree() {
    let Some(bench) = Bench::new() else { return };
    bench
        .good(cached(&["mkdir deps && echo x > deps/a"], cache("k")))
        .await;
    bench.registry.rule(
        |line| match line.starts_with("GET") && line.contains("/blobs/") {
            true => crate::registry::Rule::Status(200),
            false => crate::registry::Rule::Pass,
        },
    );
    let mut job = cached(&["[ ! -e deps ]"], cache("k"));
    job["caches"][0]["policy"] = json!("pull");
    let ran = bench.good(job).await;
    assert_says(
        &ran,
        &[
            "WARNING: Cache error for k: ",
            "the registry sent 0 of the ",
        ],
    );
}
