//! The members of what a job has several of, or none: images, artifacts, dependencies and the rest.

use serde_json::{Value, json};

use super::rows::{Row, assert_rows, nowhere, same};

/// The members of an image or a service, from and to.
fn image_rows(clause: &'static str, from: [&'static str; 10], to: [&'static str; 9]) -> Vec<Row> {
    let port = json!([{"number": 80, "protocol": "tcp", "name": "web"}]);
    let variables = json!([{"key": "K", "value": "v", "public": false, "file": false,
        "masked": true, "raw": false}]);
    let [
        name,
        alias,
        command,
        entrypoint,
        ports,
        own,
        pull,
        docker,
        user,
        kubernetes,
    ] = from;
    vec![
        same(clause, name, to[0], json!("alpine:3")),
        (clause, alias, json!("cat"), vec![(to[1], json!(["cat"]))]),
        // Several names in one text (SPEC-04, SPEC-77).
        (
            "SPEC-77",
            alias,
            json!("db, cache  queue"),
            vec![(to[1], json!(["db", "cache", "queue"]))],
        ),
        same(clause, command, to[2], json!(["run", "it"])),
        same(clause, entrypoint, to[3], json!(["/bin/bash", "-c"])),
        same(clause, ports, to[4], port),
        same(clause, own, to[5], variables),
        same(
            clause,
            pull,
            to[6],
            json!(["always", "if-not-present", "never"]),
        ),
        same("SPEC-40", docker, to[7], json!("s390x")),
        same("SPEC-41", user, to[8], json!("1000")),
        ("SPEC-41", user, json!(1000), vec![(to[8], json!("1000"))]),
        (
            "SPEC-42",
            kubernetes,
            json!({"user": "1001:1001"}),
            vec![(to[8], json!("1001:1001"))],
        ),
    ]
}

/// SPEC-04, SPEC-38, SPEC-40, SPEC-41, SPEC-42, SPEC-77
#[test]
fn an_images_members() {
    assert_rows(image_rows(
        "SPEC-38",
        [
            "/image/name",
            "/image/alias",
            "/image/command",
            "/image/entrypoint",
            "/image/ports",
            "/image/variables",
            "/image/pull_policy",
            "/image/executor_opts/docker/platform",
            "/image/executor_opts/docker/user",
            "/image/executor_opts/kubernetes",
        ],
        [
            "/image/name",
            "/image/aliases",
            "/image/command",
            "/image/entrypoint",
            "/image/ports",
            "/image/variables",
            "/image/pull_policy",
            "/image/platform",
            "/image/user",
        ],
    ));
}

/// SPEC-04, SPEC-43, SPEC-77
#[test]
fn a_services_members_are_an_images() {
    assert_rows(image_rows(
        "SPEC-43",
        [
            "/services/1/name",
            "/services/1/alias",
            "/services/1/command",
            "/services/1/entrypoint",
            "/services/1/ports",
            "/services/1/variables",
            "/services/1/pull_policy",
            "/services/1/executor_opts/docker/platform",
            "/services/1/executor_opts/docker/user",
            "/services/1/executor_opts/kubernetes",
        ],
        [
            "/services/1/name",
            "/services/1/aliases",
            "/services/1/command",
            "/services/1/entrypoint",
            "/services/1/ports",
            "/services/1/variables",
            "/services/1/pull_policy",
            "/services/1/platform",
            "/services/1/user",
        ],
    ));
}

/// SPEC-05, SPEC-45
#[test]
fn an_artifacts_members() {
    let format = |from: &str, to: &str| {
        let at = "/artifacts/0/artifact_format";
        (
            "SPEC-45",
            at,
            json!(from),
            vec![("/artifacts/0/format", json!(to))],
        )
    };
    let member = |at, value| same("SPEC-45", at, at, value);
    assert_rows(vec![
        member("/artifacts/0/name", json!("binaries")),
        (
            "SPEC-45",
            "/artifacts/0/name",
            json!(""),
            vec![("/artifacts/0/name", json!("artifacts"))],
        ),
        member("/artifacts/0/untracked", json!(true)),
        member("/artifacts/0/paths", json!(["a", "b/**"])),
        member("/artifacts/0/exclude", json!(["b/c"])),
        member("/artifacts/0/when", json!("on_failure")),
        member("/artifacts/0/when", json!("on_success")),
        member("/artifacts/0/artifact_type", json!("junit")),
        member("/artifacts/0/expire_in", json!("1 week")),
        format("", "zip"),
        format("zip", "zip"),
        format("gzip", "gzip"),
        format("raw", "raw"),
        format("zipzstd", "zipzstd"),
        format("tarzstd", "tarzstd"),
        format("rar", "zip"),
    ]);
}

/// SPEC-49, SPEC-50, SPEC-51, SPEC-52, SPEC-57
#[test]
fn credentials_dependencies_hooks_and_how_the_trace_is_written() {
    let registry = json!([{"url": "http://registry.gitlab.example.com/",
        "username": "gitlab-ci-token", "password": "job-password"}]);
    let hooks = json!([{"name": "pre_get_sources_script", "script": ["echo before", "env"]},
        {"name": "post_get_sources_script", "script": ["echo after"]}]);
    let member = |at, value| same("SPEC-50", at, at, value);
    let dependency = "/dependencies/0/artifacts_file";
    let unnamed = json!({"filename": "", "size": 5});
    assert_rows(vec![
        (
            "SPEC-49",
            "/credentials/0/type",
            json!("registry"),
            vec![("/registry_credentials", registry)],
        ),
        nowhere("SPEC-49", "/credentials/0/type", json!("dependency_proxy")),
        member("/dependencies/0/id", json!(8)),
        member("/dependencies/0/token", json!("a-token")),
        member("/dependencies/0/name", json!("a-job")),
        member(dependency, json!({"filename": "a.zip", "size": 5})),
        (
            "SPEC-50",
            dependency,
            Value::Null,
            vec![(dependency, Value::Null)],
        ),
        (
            "SPEC-50",
            dependency,
            unnamed,
            vec![(dependency, Value::Null)],
        ),
        same("SPEC-57", "/hooks", "/hooks", hooks),
        (
            "SPEC-51",
            "/features",
            json!({"trace_sections": true}),
            vec![("/trace/sections", json!(true))],
        ),
        (
            "SPEC-52",
            "/features",
            json!({"token_mask_prefixes": ["acme-", "x_"]}),
            vec![("/trace/mask_prefixes", json!(["acme-", "x_"]))],
        ),
    ]);
}
