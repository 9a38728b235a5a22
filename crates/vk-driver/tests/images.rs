//! Which images jobs may have, and when the registry is asked for them (SPEC-39).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]
#![cfg(feature = "process-vmm")]

#[path = "support/image.rs"]
mod image;
#[path = "caches/registry.rs"]
#[allow(dead_code, reason = "another test's, of which a part is used")]
mod registry;
mod support;

use image::layer;
use registry::Registry;
use serde_json::{Value, json};
use support::{Node, Ran, Started, add, spec, variable};
use vk_hub_proto::job::FailureClass;
use vk_image::PullPolicy::{Always, IfNotPresent, Never};
use vk_image::Rules;
use vk_oci::{Client, Config, Digest, Reference};

/// A job with an image, which says what is in `/version` there.
fn of(image: &str, policies: &[&str]) -> Value {
    let mut job = spec(&["cat /version || true"]);
    job["image"] = json!({ "name": image, "pull_policy": policies });
    job
}

async fn run(node: &Node, rules: &Rules, job: Value) -> Ran {
    let mut context = node.context(node.process(), job, node.job_dir());
    context.images.rules = rules.clone();
    Started::new(context).end().await
}

/// Pushes an image of busybox and a version under a tag.
async fn push(node: &Node, name: &str, version: &str) {
    let name: Reference = name.parse().unwrap();
    let client = Client::new(Config::default()).unwrap();
    let layers = [node.busybox(), layer(&[("version", version)])];
    let described = |media_type: &str, bytes: &[u8]| {
        let media_type = format!("application/vnd.oci.image.{media_type}");
        json!({ "mediaType": media_type, "digest": Digest::of(bytes), "size": bytes.len() })
    };
    let ids = layers.iter().map(|layer| Digest::of(layer).to_string());
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": ids.collect::<Vec<_>>() }
    });
    let config = config.to_string();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("config.v1+json", config.as_bytes()),
        "layers": layers.iter().map(|one| described("layer.v1.tar", one)).collect::<Vec<_>>()
    });
    for blob in layers.iter().map(Vec::as_slice).chain([config.as_bytes()]) {
        client.push_small(&name, blob).await.unwrap();
    }
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = manifest.to_string();
    let pushed = client.push_manifest(&name, media_type, manifest.as_bytes());
    pushed.await.unwrap();
}

fn check_refused(ran: &Ran, class: FailureClass, why: &str) {
    assert_eq!(ran.result.failure, Some(class), "{}", ran.output);
    assert!(ran.output.contains(why), "no {why:?} in {}", ran.output);
    assert_eq!(ran.stages(), ["prepare_executor"]);
}

/// SPEC-39: what the node does not allow is the job's mistake, and the job's log says what is allowed.
#[tokio::test]
async fn an_image_a_user_or_a_policy_that_the_node_does_not_allow_ends_the_job() {
    let Some(node) = Node::new("images") else {
        return;
    };
    let rules = Rules {
        allowed_images: vec!["busybox:{latest,1.*}".into(), "r.example.com/**".into()],
        pull_policy: vec![Never],
        allowed_pull_policies: vec![Never, IfNotPresent],
        allowed_users: vec!["0:0".into()],
        ..Rules::default()
    };
    let mut job = of("docker.io/library/busybox", &["never"]);
    job["image"]["user"] = json!("0:0");
    let allowed = run(&node, &rules, job).await;
    assert_eq!(allowed.result.failure, None, "{}", allowed.output);
    let configuration = FailureClass::Configuration;
    for (job, why) in [
        (
            of("alpine:3", &[]),
            "image \"alpine:3\" is not allowed on this node; allowed are busybox:{latest,1.*}, \
             r.example.com/**",
        ),
        (
            of("busybox", &["always"]),
            "pull_policy ([always]) is not one of the allowed_pull_policies ([never] \
             [if-not-present])",
        ),
    ] {
        check_refused(&run(&node, &rules, job).await, configuration, why);
    }
    let said = "user \"7\" is not allowed on this node; allowed are 0:0";
    let mut by_image = of("busybox", &[]);
    by_image["image"]["user"] = json!("$NAMED");
    add(&mut by_image, "variables", variable("NAMED", "7"));
    let mut by_variable = of("busybox", &[]);
    add(&mut by_variable, "variables", variable("MICROVM_USER", "7"));
    for job in [by_image, by_variable] {
        check_refused(&run(&node, &rules, job).await, configuration, said);
    }
}

/// SPEC-39: `always` sees that a tag moved, the others do not; a job has its own policy where the
/// node allows it; what was imported is what its name stands for.
#[tokio::test]
async fn the_registry_is_asked_as_the_policy_says() {
    let (Some(node), Some(registry)) = (Node::new("images"), Registry::open()) else {
        return;
    };
    let name = format!("{}/tool:1", registry.host);
    push(&node, &name, "first").await;
    let mut rules = Rules {
        pull_policy: vec![IfNotPresent],
        allowed_pull_policies: vec![Always, IfNotPresent, Never],
        ..Rules::default()
    };
    // A job's own word is not enough for a registry of the node's host: its owner's is.
    registry.asked();
    let near = run(&node, &rules, of(&name, &["always"])).await;
    check_refused(&near, FailureClass::Configuration, "[registry] insecure");
    assert!(registry.asked().is_empty());
    // One of a GitLab that is as near comes with the job, as GitLab says.
    let its = format!("{}/of-gitlab:1", registry.host);
    push(&node, &its, "of GitLab").await;
    let mut of_gitlab = of(&its, &["always"]);
    let credential = json!({ "url": registry.host, "username": "t", "password": "p" });
    add(&mut of_gitlab, "registry_credentials", credential);
    let near = run(&node, &rules, of_gitlab).await;
    assert_eq!(near.result.failure, None, "{}", near.output);
    rules.allowed_images = vec![format!("{}/**", registry.host)];
    let missing = run(&node, &rules, of(&name, &["never"])).await;
    check_refused(&missing, FailureClass::ImagePull, "tool:1");
    registry.asked();
    let good = async |rules: &Rules, job: Value, version: &str| {
        let ran = run(&node, rules, job).await;
        assert_eq!(ran.result.failure, None, "{}", ran.output);
        assert!(ran.has(version), "no {version} in {}", ran.output);
        (registry.asked().len(), ran)
    };
    let (asked, pulled) = good(&rules, of(&name, &[]), "first").await;
    assert!(asked > 0 && pulled.output.contains(", pulled"));
    push(&node, &name, "second").await;
    registry.asked();
    for policy in [&[][..], &["if-not-present"], &["never"]] {
        let (asked, ran) = good(&rules, of(&name, policy), "first").await;
        assert_eq!(asked, 0, "{policy:?}");
        assert!(ran.output.contains(", found on the node"), "{}", ran.output);
    }
    let (asked, moved) = good(&rules, of(&name, &["always"]), "second").await;
    assert!(asked > 0 && moved.output.contains(", pulled"));
    let policy = format!("Using effective pull policy of [always] for image {name}");
    assert!(moved.output.contains(&policy), "{}", moved.output);
    // The node's own, which has not moved again: one question.
    rules.pull_policy = vec![Always];
    let (asked, same) = good(&rules, of(&name, &[]), "second").await;
    assert_eq!(asked, 1);
    assert!(
        same.output.contains(", found on the node"),
        "{}",
        same.output
    );
    // As the operator says.
    let layers = [node.busybox(), layer(&[("version", "imported")])];
    node.image(&name, &Value::Null, &layers);
    let (asked, imported) = good(&rules, of(&name, &[]), "imported").await;
    assert_eq!(asked, 0);
    assert!(
        imported.output.contains(", imported"),
        "{}",
        imported.output
    );
}

/// FAIL-33: an image beyond the node's bounds is the image's failure, told with what to set.
#[tokio::test]
async fn an_image_that_is_larger_than_one_may_be_fails_its_job_and_leaves_nothing() {
    let (Some(node), Some(registry)) = (Node::new("images"), Registry::open()) else {
        return;
    };
    let name = format!("{}/tool:1", registry.host);
    push(&node, &name, "large").await;
    let mut context = node.context(node.process(), of(&name, &[]), node.job_dir());
    context.images.rules.pull_policy = vec![Always];
    context.images.insecure_registries = vec![registry.host.clone()];
    let (image, total) = (64 << 10, u64::MAX);
    let bounds = vk_image::Bounds { image, total };
    context.images.store = context.images.store.clone().bounded(bounds);
    let store = context.images.store.clone();
    let before = store.list().unwrap().len();
    let ran = Started::new(context).end().await;
    check_refused(&ran, FailureClass::ImagePull, "[images] max_image");
    assert_eq!(store.list().unwrap().len(), before);
}
