//! Registries that fail, and archives that are too large.

use serde_json::json;
use vk_driver::Caches;

use crate::registry::Rule;
use crate::support::{Started, add, variable};
use crate::{Bench, assert_says, cache, cached, says};

const MAKE: &str = "mkdir -p deps && echo one > deps/a";

/// CACHE-18, CACHE-19
#[tokio::test]
async fn a_registry_that_fails_is_an_error_in_the_trace_and_none_of_the_job() {
    let Some(bench) = Bench::new() else { return };
    bench.good(cached(&[MAKE], cache("k"))).await;
    // Refusals are final, so nothing is waited for.
    bench.registry.rule(|_| Rule::Status(403));
    let ran = bench
        .good(cached(&["[ ! -e deps ]", MAKE], cache("k")))
        .await;
    assert_says(
        &ran,
        &[
            "WARNING: Cache error for k: denied by ",
            "asked without credentials",
        ],
    );
    assert!(!says(&ran, &["Cache miss"]), "{}", ran.output);
    assert_says(&ran, &["Failed to extract cache"]);
    assert_says(&ran, &["Failed to create cache"]);
    // One that has the manifest and not the layer.
    bench.registry.rule(|line| match line.contains("/blobs/") {
        true => Rule::Status(404),
        false => Rule::Pass,
    });
    let mut job = cached(&["[ ! -e deps ]"], cache("k"));
    job["caches"][0]["policy"] = json!("pull");
    let ran = bench.good(job.clone()).await;
    assert_says(&ran, &["Cache hit for k"]);
    assert_says(&ran, &["WARNING: Cache error for k: "]);
    // One that is gone.
    let mut context = bench.context(job);
    context.caches.repo = Some("127.0.0.1:9/vk".to_owned());
    let ran = Started::new(context).end().await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert_says(&ran, &["Cache error for k: 127.0.0.1:9 cannot be reached"]);
}

/// CACHE-12, CACHE-15
#[tokio::test]
async fn a_job_that_may_have_no_caches_is_told_why_and_runs() {
    let Some(bench) = Bench::new() else { return };
    type Change = fn(&mut Caches);
    let changes: [(&str, Change); 3] = [
        ("names a registry for them as [registry] repo", |caches| {
            caches.repo = None
        }),
        ("only with a job's own registry token", |caches| {
            caches.job_token_only = true
        }),
        ("is no repository's name", |caches| {
            caches.repo = Some("no host/vk".to_owned())
        }),
    ];
    for (said, change) in changes {
        let mut context = bench.context(cached(&[MAKE], cache("deps-main")));
        change(&mut context.caches);
        let ran = Started::new(context).end().await;
        assert_eq!(ran.result.failure, None, "{}", ran.output);
        assert_says(&ran, &["Cache deps-main is not restored: ", said]);
        assert_says(&ran, &["Cache deps-main is not saved: ", said]);
    }
    assert_eq!(bench.registry.asked(), Vec::<String>::new());
}

/// GUEST-07, GUEST-11
#[tokio::test]
async fn a_cache_over_the_cap_is_skipped_with_a_warning() {
    let Some(bench) = Bench::new() else { return };
    let make = "mkdir deps && head -c 300000 /dev/urandom > deps/a";
    let mut context = bench.context(cached(&[make], cache("k")));
    context.caches.layer_cap = 200_000;
    let ran = Started::new(context).end().await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert_says(
        &ran,
        &["Cache error for k: the archive has more than the 200.00 KB"],
    );
    let asked = bench.registry.asked();
    assert!(
        asked.iter().all(|line| line.starts_with("GET")),
        "{asked:?}"
    );
    bench.good(cached(&[make], cache("k"))).await;
    // A node that may keep less takes none of it.
    let mut job = cached(&["[ ! -e deps ]"], cache("k"));
    job["caches"][0]["policy"] = json!("pull");
    let mut context = bench.context(job);
    context.caches.layer_cap = 200_000;
    bench.registry.asked();
    let ran = Started::new(context).end().await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert_says(
        &ran,
        &[
            "Cache error for k: its archive has 30",
            "200.00 KB on this node",
        ],
    );
    assert_eq!(bench.registry.asked().len(), 1);
}

#[tokio::test]
async fn settings_that_are_not_understood_are_said_at_the_begin() {
    let Some(bench) = Bench::new() else { return };
    let mut job = cached(&[MAKE], cache("k"));
    add(
        &mut job,
        "variables",
        variable("CACHE_REQUEST_TIMEOUT", "soon"),
    );
    let ran = bench.good(job).await;
    assert_says(
        &ran,
        &["CACHE_REQUEST_TIMEOUT: expected int got \"soon\", using default value: 10"],
    );
}
