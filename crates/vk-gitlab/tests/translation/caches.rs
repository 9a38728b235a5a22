//! Caches: their keys, policies, and what is said where something is left out.

use serde_json::{Value, json};

use super::fixture::{leaves, spec, translated, with};

/// A job with this cache, its name, its ref and the variables that its key may name.
fn job(cache: &Value, name: &str, reference: &str) -> Value {
    let mut response = with("/cache", json!([cache]));
    response["job_info"]["name"] = name.into();
    response["git_info"]["ref"] = reference.into();
    response["variables"] = json!([
        {"key": "foo", "value": "someFoo"}, {"key": "bar", "value": "someBar"},
        {"key": "CACHE_POLICY", "value": "pull-push"}, {"key": "PULL", "value": "pull"},
        {"key": "BLAH", "value": "blah"}, {"key": "SECRET", "value": "s3cret/.", "masked": true}]);
    response
}

/// Upstream's notices of a cache whose key comes to nothing, at both ends of the job.
const SKIPPED: [&str; 2] = [
    "Skipping cache extraction due to empty cache key",
    "Skipping cache archiving due to empty cache key",
];

/// PORT-34, SPEC-03, SPEC-46, SPEC-47, SPEC-48, SPEC-73, SPEC-75
#[test]
fn a_caches_key_is_the_one_upstream_makes_of_it() {
    struct Row {
        written: &'static str,
        job: [&'static str; 2],
        key: Option<&'static str>,
        said: &'static [&'static str],
    }
    let row = |written, key, said| Row {
        written,
        job: ["some-job", "some-ref"],
        key,
        said,
    };
    let rows = [
        Row {
            job: ["", ""],
            ..row("", None, &["cache key \"/\" could not be sanitized"])
        },
        row("", Some("some-job/some-ref"), &[]),
        Row {
            job: ["some\\job\\name", "some/git/ref"],
            ..row(
                "",
                Some("some/job/name/some/git/ref"),
                &["cache key \"some\\\\job\\\\name/some/git/ref\" was sanitized"],
            )
        },
        row("some/user/key", Some("some/user/key"), &[]),
        row(
            "some%2fuser%2Fkey",
            Some("some/user/key"),
            &["cache key \"some%2fuser%2Fkey\" was sanitized"],
        ),
        row("/", None, &["cache key \"/\" could not be sanitized"]),
        row("${foo}/${bar}/baz", Some("someFoo/someBar/baz"), &[]),
        // A variable's own value ends as a path does, and is not told.
        row(
            "a/$SECRET",
            Some("a/s3cret"),
            &["cache key \"a/$SECRET\" was sanitized"],
        ),
        // Only the node sets these.
        row("$CI_PROJECT_DIR", None, &[]),
        row("$CI_CONCURRENT_ID", None, &[]),
        row("x-$CI_CONCURRENT_ID", Some("x-"), &[]),
        row("$UNKNOWN", None, &[]),
        row(
            "$CI_RUNNER_VERSION-$CI_RUNNER_SHORT_TOKEN",
            Some("0.1.0-abcdefghi"),
            &[],
        ),
    ];
    for row in rows {
        let name = format!("{:?} of {:?}", row.written, row.job);
        let cache = json!({"key": row.written, "paths": ["vendor/"]});
        let translated = translated(&job(&cache, row.job[0], row.job[1]));
        let caches = &translated.job.caches;
        let key = caches.first().map(|cache| cache.key.as_str());
        assert_eq!(key, row.key, "{name}");
        let notices: &[&str] = if row.key.is_none() { &SKIPPED } else { &[] };
        assert_eq!(translated.warnings, [row.said, notices].concat(), "{name}");
    }
}

/// SPEC-74, SPEC-75
#[test]
fn a_caches_policy_may_be_a_variable_and_an_unknown_one_is_dropped_with_a_warning() {
    let rows = [
        ("pull", "pull", true),
        ("push", "push", true),
        ("pull-push", "pull-push", true),
        ("", "pull-push", true),
        ("$CACHE_POLICY", "pull-push", true),
        ("$PULL", "pull", true),
        ("${PULL}", "pull", true),
        ("$BLAH", "pull-push", false),
        ("CACHE_POLICY", "pull-push", false),
        ("Pull", "pull-push", false),
    ];
    for (written, policy, known) in rows {
        let response = job(&json!({"key": "k", "policy": written}), "a", "b");
        let spec = spec(&response);
        assert_eq!(spec["caches"][0]["policy"], policy, "{written:?}");
        let warnings = translated(&response).warnings;
        let unknown = format!("cache policy {written:?} is unknown; pull-push is used");
        let expected: Vec<String> = (!known).then_some(unknown).into_iter().collect();
        assert_eq!(warnings, expected, "{written:?}");
    }
}

/// SPEC-46, SPEC-75
#[test]
fn a_caches_members() {
    let cache = json!({"key": "k", "untracked": true, "paths": ["vendor/", "$foo"],
        "policy": "push", "when": "always",
        "fallback_keys": ["$CI_RUNNER_VERSION/x", "/", "", "a b/../c/$SECRET", "last"]});
    let response = job(&cache, "a", "b");
    let expected = json!({"key": "k", "untracked": true, "paths": ["vendor/", "$foo"],
        "policy": "push", "when": "always", "fallback_keys": ["0.1.0/x", "c/s3cret", "last"]});
    assert_eq!(leaves(&spec(&response)["caches"][0]), leaves(&expected));
    let warnings = translated(&response).warnings;
    assert_eq!(
        warnings,
        [
            "cache key \"/\" could not be sanitized",
            "cache key \"a b/../c/$SECRET\" was sanitized"
        ]
    );
    let plain = spec(&job(&json!({"key": "k"}), "a", "b"));
    let expected = json!({"key": "k", "untracked": false, "paths": [], "policy": "pull-push",
        "when": "on_success"});
    assert_eq!(leaves(&plain["caches"][0]), leaves(&expected));
}
