//! What is kept, where, and what comes back.

use serde_json::json;
use vk_oci::{Client, Config, Reference};

use vk_driver::Counts;

use crate::registry::Rule;
use crate::support::{Started, add, variable};
use crate::{Bench, assert_says, cache, cached, says};

/// The tree that a job makes and a later one looks at.
const MAKE: &str = "mkdir -p deps/sub && echo one > deps/a && echo two > deps/sub/b && \
                    ln -s sub/b deps/l && chmod 700 deps/a";
const LOOK: &str = "[ \"$(cat deps/a deps/l)\" = \"$(printf 'one\\ntwo')\" ] && [ -x deps/a ] && \
                    [ -L deps/l ] && echo restored";

fn paths(asked: &[String], method: &str) -> usize {
    let method = format!("{method} ");
    asked
        .iter()
        .filter(|line| line.starts_with(&method))
        .count()
}

/// CACHE-01, CACHE-02, CACHE-03, CACHE-07, CACHE-14, CACHE-18, CACHE-19, GUEST-03, OPEN-02
#[tokio::test]
async fn what_a_job_saves_the_next_has_and_keeping_it_unchanged_costs_a_probe() {
    let Some(bench) = Bench::new() else { return };
    let ran = bench.good(cached(&[MAKE], cache("deps-main"))).await;
    assert_says(&ran, &["Checking cache for deps-main..."]);
    assert_says(&ran, &["WARNING: Cache miss for deps-main"]);
    assert_says(&ran, &["Failed to extract cache"]);
    assert_says(&ran, &["Creating cache deps-main..."]);
    assert_says(
        &ran,
        &["deps/: found 5 matching artifact files and directories"],
    );
    assert_says(
        &ran,
        &[
            "Cache deps-main is saved: ",
            " of 5 files and directories, 8 B",
            "digest",
        ],
    );
    assert!(ran.has("\x1b[32;1mCreated cache\x1b[0;m"), "{}", ran.output);
    let asked = bench.registry.asked();
    // The layer and the empty configuration.
    assert_eq!(
        (paths(&asked, "POST"), paths(&asked, "PUT")),
        (2, 3),
        "{asked:?}"
    );
    let of_project = "/v2/vk/ci-cache/127.0.0.1-9/3/";
    assert!(
        asked.iter().all(|line| line.contains(of_project)),
        "{asked:?}"
    );
    let put = asked.last().unwrap();
    let tag = put.rsplit('/').next().unwrap();
    let at = format!("{}/vk/ci-cache/127.0.0.1-9/3:{tag}", bench.registry.host);
    let at: Reference = at.parse().unwrap();
    let manifest = Client::new(Config::default())
        .unwrap()
        .manifest(&at, "application/vnd.oci.image.manifest.v1+json", 64 << 10)
        .await
        .unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    let layer = "application/vnd.vk.ci-cache.layer.v1.tar+zstd";
    assert_eq!(manifest["layers"][0]["mediaType"], layer);
    bench.registry.asked();

    let ran = bench.good(cached(&[LOOK], cache("deps-main"))).await;
    assert!(ran.has("restored"), "{}", ran.output);
    assert_says(&ran, &["Cache hit for deps-main: ", " B, saved ", " ago"]);
    assert!(
        ran.has("\x1b[32;1mSuccessfully extracted cache\x1b[0;m"),
        "{}",
        ran.output
    );
    assert_says(&ran, &["Cache deps-main is unchanged"]);
    let asked = bench.registry.asked();
    let methods: Vec<_> = asked
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(methods, ["GET", "GET", "HEAD"], "{asked:?}");
    assert!(asked[2].contains("/blobs/sha256:"), "{asked:?}");
}

/// CACHE-06
#[tokio::test]
async fn the_last_archive_that_was_written_is_the_cache() {
    let Some(bench) = Bench::new() else { return };
    for (script, expected) in [
        ("mkdir deps && echo first > deps/a", None),
        ("cat deps/a && echo second > deps/a", Some("first")),
        ("cat deps/a", Some("second")),
    ] {
        let ran = bench.good(cached(&[script], cache("k"))).await;
        assert!(expected.is_none_or(|line| ran.has(line)), "{}", ran.output);
    }
    // The first content again: it is at the registry, and becomes the cache by its name.
    let again = cached(&["touch -d @0 deps/a deps"], cache("k"));
    bench.good(again.clone()).await;
    bench
        .good(cached(&["echo third > deps/a"], cache("k")))
        .await;
    let mut again = cached(
        &["echo second > deps/a && touch -d @0 deps/a deps"],
        cache("k"),
    );
    again["caches"][0]["policy"] = json!("push");
    again["steps"][0]["script"][0] =
        json!("mkdir deps && echo second > deps/a && touch -d @0 deps/a deps");
    let ran = bench.good(again).await;
    assert_says(&ran, &["Cache k is saved: its ", "at the registry already"]);
    let ran = bench.good(cached(&["cat deps/a"], cache("k"))).await;
    assert!(ran.has("second"), "{}", ran.output);
}

/// CACHE-05, CACHE-21
#[tokio::test]
async fn protected_and_unprotected_jobs_never_share_a_cache() {
    let Some(bench) = Bench::new() else { return };
    let job = |protected: serde_json::Value, script: &str| {
        let mut job = cached(&[script], cache("k"));
        job["sources"]["protected"] = protected;
        job
    };
    let make = "mkdir deps && echo $CI_COMMIT_REF_PROTECTED > deps/a";
    bench.good(job(json!(true), make)).await;
    let ran = bench.good(job(json!(false), make)).await;
    assert_says(&ran, &["Cache miss for k"]);
    let ran = bench.good(job(json!(null), "true")).await;
    assert_says(&ran, &["Cache hit for k"]);
    let asked = bench.registry.asked();
    let tag = |line: &&String| line.starts_with("PUT") && line.contains("/manifests/");
    let mut tags: Vec<_> = asked.iter().filter(tag).collect();
    tags.dedup();
    assert_eq!(tags.len(), 2, "{asked:?}");
    let mut of_variable = job(json!(null), "true");
    add(
        &mut of_variable,
        "variables",
        variable("CI_COMMIT_REF_PROTECTED", "true"),
    );
    bench.good(of_variable).await;
    let asked = bench.registry.asked();
    let protected = tags[0].strip_prefix("PUT").unwrap();
    assert_eq!(asked[0], format!("GET{protected}"));
}

/// CACHE-05
#[tokio::test]
async fn a_variable_of_the_jobs_own_claims_no_protection() {
    let Some(bench) = Bench::new() else { return };
    let mut protected = cached(
        &["mkdir deps && echo of a protected ref > deps/a"],
        cache("k"),
    );
    protected["sources"]["protected"] = json!(true);
    bench.good(protected).await;
    // GitLab's own word first, then what the job's YAML says.
    let claims = |own: &[&str]| {
        let script = "echo claims $CI_COMMIT_REF_PROTECTED; mkdir -p deps; cat deps/* || true";
        let mut job = cached(&[script], cache("k"));
        job["sources"]["protected"] = json!(null);
        for value in own {
            let own = variable("CI_COMMIT_REF_PROTECTED", value);
            add(&mut job, "variables", own);
        }
        job
    };
    let ran = bench.good(claims(&["false", "true"])).await;
    // Its script sees what it said; its caches do not.
    assert!(ran.has("claims true"), "{}", ran.output);
    assert_says(&ran, &["Cache miss for k"]);
    assert!(!ran.has("of a protected ref"), "{}", ran.output);
    // The other way round neither: a protected ref's job has its own.
    let ran = bench.good(claims(&["true", "false"])).await;
    assert!(ran.has("of a protected ref"), "{}", ran.output);
    // Where GitLab says it in the job's sources, no variable counts.
    let mut told = claims(&["true", "true"]);
    told["sources"]["protected"] = json!(false);
    let ran = bench.good(told).await;
    assert!(!ran.has("of a protected ref"), "{}", ran.output);
}

/// What the node's operators count.
#[tokio::test]
async fn hits_misses_errors_and_boots_are_told_as_the_job_goes() {
    let Some(bench) = Bench::new() else { return };
    let counted = async |job| {
        let started = Started::new(bench.context(job));
        let state = started.state.clone();
        let ran = started.end().await;
        assert_eq!(ran.result.failure, None, "{}", ran.output);
        state.borrow().counts
    };
    let first = counted(cached(&["mkdir deps && touch deps/a"], cache("k"))).await;
    let expected = Counts {
        boots: 1,
        cache_misses: 1,
        ..Counts::default()
    };
    assert_eq!(first, expected);
    let again = counted(cached(&["true"], cache("k"))).await;
    assert_eq!((again.cache_hits, again.cache_misses), (1, 0));
    bench.registry.rule(|_| Rule::Status(403));
    // Refusals are final, so nothing is waited for.
    let failing = counted(cached(&["true"], cache("k"))).await;
    assert_eq!((failing.cache_hits, failing.cache_errors), (0, 1));
}

/// CACHE-18
#[tokio::test]
async fn fallback_keys_are_tried_in_order_and_the_variable_last() {
    let Some(bench) = Bench::new() else { return };
    let save = |key: &str| cached(&["mkdir deps && echo $CI_JOB_ID > deps/a"], cache(key));
    bench.good(save("third")).await;
    let mut job = cached(&["cat deps/a"], cache("first"));
    job["caches"][0]["fallback_keys"] = json!(["second"]);
    job["caches"][0]["policy"] = json!("pull");
    add(
        &mut job,
        "variables",
        variable("CACHE_FALLBACK_KEY", "x/../third"),
    );
    let ran = bench.good(job.clone()).await;
    let order = [
        "first...",
        "miss for first",
        "second...",
        "miss for second",
        "third...",
        "hit for third",
    ];
    let found = order.map(|part| ran.output.find(part).unwrap_or_else(|| panic!("{part}")));
    assert!(found.is_sorted(), "{}", ran.output);
    assert_says(&ran, &["cache key \"x/../third\" sanitized to \"third\""]);
    bench.good(save("second")).await;
    let ran = bench.good(job.clone()).await;
    assert!(!says(&ran, &["third..."]), "{}", ran.output);
    // A cache that a protected ref would have saved is not asked for.
    bench.registry.asked();
    job["caches"][0]["fallback_keys"] = json!([]);
    job["variables"].as_array_mut().unwrap().pop();
    add(
        &mut job,
        "variables",
        variable("CACHE_FALLBACK_KEY", "third-protected"),
    );
    job["steps"][0]["script"] = json!(["[ ! -e deps ]"]);
    let ran = bench.good(job).await;
    assert_says(
        &ran,
        &["CACHE_FALLBACK_KEY \"third-protected\" not allowed to end in"],
    );
    assert_eq!(bench.registry.asked().len(), 1);
}

/// CACHE-20
#[tokio::test]
async fn policy_and_when_are_honoured() {
    let Some(bench) = Bench::new() else { return };
    let job = |policy: &str, when: &str, script: &str| {
        let mut job = cached(&["mkdir -p deps && echo x > deps/a", script], cache("k"));
        job["caches"][0]["policy"] = json!(policy);
        job["caches"][0]["when"] = json!(when);
        job
    };
    for (policy, when, script, line, methods) in [
        (
            "pull",
            "on_success",
            "true",
            "Not uploading cache k due to policy",
            "GET",
        ),
        (
            "push",
            "on_failure",
            "true",
            "Not downloading cache k due to policy",
            "",
        ),
        (
            "push",
            "on_success",
            "false",
            "Not downloading cache k due to policy",
            "",
        ),
        (
            "push",
            "always",
            "false",
            "Saving cache for failed job",
            "HEAD POST PUT HEAD POST PUT PUT",
        ),
        ("pull", "always", "false", "Cache hit for k", "GET GET"),
    ] {
        let ran = bench.run(job(policy, when, script)).await;
        assert_eq!(ran.result.failure.is_some(), script == "false");
        assert_says(&ran, &[line]);
        let asked = bench.registry.asked();
        let asked: Vec<_> = asked
            .iter()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(asked.join(" "), methods, "{policy} {when} {}", ran.output);
    }
}

/// CACHE-20
#[tokio::test]
async fn an_empty_archive_never_replaces_what_is_there() {
    let Some(bench) = Bench::new() else { return };
    bench
        .good(cached(&["mkdir deps && echo full > deps/a"], cache("k")))
        .await;
    for (script, said) in [
        ("rm -r deps", "No files to cache."),
        (
            "rm deps/a",
            "Cache error for k: its files have no content now",
        ),
        (
            "> deps/a",
            "Cache error for k: its files have no content now",
        ),
    ] {
        let ran = bench
            .good(cached(&["cat deps/a", script], cache("k")))
            .await;
        assert!(ran.has("full"), "{}", ran.output);
        assert_says(&ran, &["WARNING: ", said]);
        let failed = says(&ran, &["Failed to create cache"]);
        assert_eq!(failed, said.contains("error"), "{}", ran.output);
    }
    // Where nothing is, a tree without content is a tree.
    let ran = bench
        .good(cached(&["mkdir -p deps/sub"], cache("other")))
        .await;
    assert_says(&ran, &["Cache other is saved"]);
    let ran = bench
        .good(cached(&["[ -d deps/sub ] && echo there"], cache("other")))
        .await;
    assert!(ran.has("there"), "{}", ran.output);
}
