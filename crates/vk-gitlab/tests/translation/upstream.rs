//! The fixtures of upstream's test support.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vk_hub_proto::job::FailureClass;

use super::fixture::{differences, fixture, leaves, refused, spec};

/// PORT-01, SPEC-07, SPEC-08, SPEC-09, SPEC-10, SPEC-11, SPEC-13, SPEC-14, SPEC-21, SPEC-24, SPEC-25, SPEC-26, SPEC-27, SPEC-31
#[test]
fn the_fixture_of_upstreams_request_test_is_translated_to_this_and_no_more() {
    // The credentials are of type `Registry`, which is another word than `registry`, and the cache's
    // key comes to nothing: neither is in the spec.
    let rows = [
        ("SPEC-45", "/artifacts/0/artifact_type", json!("archive")),
        ("SPEC-45", "/artifacts/0/expire_in", json!("7d")),
        ("SPEC-45", "/artifacts/0/format", json!("zip")),
        ("SPEC-45", "/artifacts/0/name", json!("artifact.zip")),
        ("SPEC-45", "/artifacts/0/paths/0", json!("out/*")),
        ("SPEC-45", "/artifacts/0/untracked", json!(false)),
        ("SPEC-45", "/artifacts/0/when", json!("always")),
        (
            "SPEC-50",
            "/dependencies/0/artifacts_file/filename",
            json!("binaries.zip"),
        ),
        (
            "SPEC-50",
            "/dependencies/0/artifacts_file/size",
            json!(13631488),
        ),
        ("SPEC-50", "/dependencies/0/id", json!(9)),
        ("SPEC-50", "/dependencies/0/name", json!("other-job")),
        ("SPEC-50", "/dependencies/0/token", json!("other-job-token")),
        ("SPEC-38", "/image/entrypoint/0", json!("/bin/sh")),
        ("SPEC-38", "/image/name", json!("ruby:3.3")),
        ("SPEC-40", "/image/platform", json!("arm64/v8")),
        ("SPEC-07", "/job/id", json!(10)),
        ("SPEC-10", "/job/name", json!("test-job")),
        ("SPEC-16", "/job/namespace_id", json!(0)),
        ("SPEC-12", "/job/pipeline_id", json!(0)),
        ("SPEC-13", "/job/project_id", json!(123)),
        ("SPEC-14", "/job/project_name", json!("test-project")),
        ("SPEC-15", "/job/project_path", json!("test/test-project")),
        ("SPEC-17", "/job/root_namespace_id", json!(0)),
        ("SPEC-65", "/job/runner_id", json!(7)),
        ("SPEC-11", "/job/stage", json!("test")),
        ("SPEC-18", "/job/user_id", json!(0)),
        ("SPEC-01", "/kind", json!("gitlab_ci")),
        ("SPEC-62", "/server_ca_pem", json!("CA")),
        (
            "SPEC-64",
            "/server_url",
            json!("https://gitlab.example.com"),
        ),
        ("SPEC-43", "/services/0/aliases/0", json!("db-pg")),
        ("SPEC-43", "/services/0/command/0", json!("sleep")),
        ("SPEC-43", "/services/0/command/1", json!("30")),
        ("SPEC-43", "/services/0/entrypoint/0", json!("/bin/sh")),
        ("SPEC-43", "/services/0/name", json!("postgresql:9.5")),
        ("SPEC-43", "/services/0/platform", json!("amd64/linux")),
        ("SPEC-43", "/services/1/aliases/0", json!("db-mysql")),
        ("SPEC-43", "/services/1/name", json!("mysql:5.6")),
        ("SPEC-43", "/services/1/platform", json!("arm")),
        ("SPEC-09", "/sources/allow_fetch", json!(false)),
        ("SPEC-26", "/sources/before_sha", json!("654321fedcba")),
        ("SPEC-29", "/sources/depth", json!(0)),
        ("SPEC-76", "/sources/object_format", json!("sha1")),
        ("SPEC-24", "/sources/ref", json!("main")),
        ("SPEC-27", "/sources/ref_type", json!("branch")),
        (
            "SPEC-21",
            "/sources/repo_url",
            json!("https://gitlab.example.com/test/test-project.git"),
        ),
        ("SPEC-25", "/sources/sha", json!("abcdef123456")),
        ("SPEC-37", "/steps/0/allow_failure", json!(false)),
        ("SPEC-37", "/steps/0/name", json!("script")),
        ("SPEC-37", "/steps/0/script/0", json!("date")),
        ("SPEC-37", "/steps/0/script/1", json!("ls -ls")),
        ("SPEC-37", "/steps/0/timeout_secs", json!(3600)),
        ("SPEC-37", "/steps/0/when", json!("on_success")),
        ("SPEC-37", "/steps/1/allow_failure", json!(true)),
        ("SPEC-37", "/steps/1/name", json!("after_script")),
        ("SPEC-37", "/steps/1/script/0", json!("ls -ls")),
        ("SPEC-37", "/steps/1/timeout_secs", json!(3600)),
        ("SPEC-37", "/steps/1/when", json!("always")),
        ("SPEC-31", "/timeout_secs", json!(3600)),
        ("SPEC-08", "/token", json!("job-token")),
        ("SPEC-53", "/trace/limit_bytes", json!(4194304)),
        ("SPEC-51", "/trace/sections", json!(false)),
        ("SPEC-71", "/variables/0/file", json!(false)),
        (
            "SPEC-71",
            "/variables/0/key",
            json!("CI_RUNNER_SHORT_TOKEN"),
        ),
        ("SPEC-71", "/variables/0/masked", json!(false)),
        ("SPEC-71", "/variables/0/public", json!(true)),
        ("SPEC-71", "/variables/0/raw", json!(true)),
        ("SPEC-71", "/variables/0/value", json!("abcdefghi")),
        ("SPEC-34", "/variables/1/file", json!(true)),
        ("SPEC-34", "/variables/1/key", json!("CI_REF_NAME")),
        ("SPEC-34", "/variables/1/masked", json!(false)),
        ("SPEC-34", "/variables/1/public", json!(true)),
        ("SPEC-34", "/variables/1/raw", json!(true)),
        ("SPEC-34", "/variables/1/value", json!("main")),
        ("SPEC-71", "/variables/2/file", json!(false)),
        ("SPEC-71", "/variables/2/key", json!("CI_RUNNER_VERSION")),
        ("SPEC-71", "/variables/2/masked", json!(false)),
        ("SPEC-71", "/variables/2/public", json!(true)),
        ("SPEC-71", "/variables/2/raw", json!(true)),
        ("SPEC-71", "/variables/2/value", json!("0.1.0")),
        ("SPEC-71", "/variables/3/file", json!(false)),
        ("SPEC-71", "/variables/3/key", json!("CI_RUNNER_REVISION")),
        ("SPEC-71", "/variables/3/masked", json!(false)),
        ("SPEC-71", "/variables/3/public", json!(true)),
        ("SPEC-71", "/variables/3/raw", json!(true)),
        ("SPEC-71", "/variables/3/value", json!("abcd1234")),
        ("SPEC-71", "/variables/4/file", json!(false)),
        (
            "SPEC-71",
            "/variables/4/key",
            json!("CI_RUNNER_EXECUTABLE_ARCH"),
        ),
        ("SPEC-71", "/variables/4/masked", json!(false)),
        ("SPEC-71", "/variables/4/public", json!(true)),
        ("SPEC-71", "/variables/4/raw", json!(true)),
        ("SPEC-71", "/variables/4/value", json!("linux/amd64")),
    ];
    let clauses: BTreeMap<&str, &str> = rows.iter().map(|row| (row.1, row.0)).collect();
    let expected = rows
        .into_iter()
        .map(|(_, at, value)| (at.to_owned(), value));
    let found = differences(&leaves(&spec(&fixture())), &expected.collect());
    let named: Vec<String> = found
        .into_iter()
        .map(|what| {
            let at = what.split(": ").next().unwrap_or_default();
            format!("{} {what}", clauses.get(at).unwrap_or(&"in no row:"))
        })
        .collect();
    assert!(named.is_empty(), "{named:#?}");
}

const REPO: &str = "https://gitlab.example.com/a/b.git";

/// What every fixture of upstream's has around its steps.
fn response(steps: &Value) -> Value {
    json!({"id": 1, "token": "t", "job_info": {"project_id": 1},
        "variables": [{"key": "CI_JOB_TOKEN", "value": "test-job-token"}],
        "git_info": {"repo_url": REPO, "sha": "69b18e5ed3610cf646119c3e38f462c64ec462b7",
            "before_sha": "1ea27a9695f80d7816d9e8ce025d9b2df83d0dd7", "ref": "main",
            "ref_type": "branch", "refspecs": ["+refs/heads/*:refs/origin/heads/*",
            "+refs/tags/*:refs/tags/*"], "depth": 0},
        "steps": steps, "runner_info": {"timeout": 7200}})
}

/// Whether the spec of a fixture has these values at these places, and these steps.
fn assert_spec(fixture: &str, written: &Value, steps: &Value) {
    let spec = spec(&response(written));
    let wrong = differences(&leaves(&spec["steps"]), &leaves(steps));
    assert!(wrong.is_empty(), "{fixture}: steps{wrong:#?}");
    let sources = json!({"repo_url": REPO, "object_format": "sha1", "ref": "main",
        "ref_type": "branch", "sha": "69b18e5ed3610cf646119c3e38f462c64ec462b7",
        "before_sha": "1ea27a9695f80d7816d9e8ce025d9b2df83d0dd7", "refspecs":
        ["+refs/heads/*:refs/origin/heads/*", "+refs/tags/*:refs/tags/*"], "depth": 0,
        "allow_fetch": false});
    let wrong = differences(&leaves(&spec["sources"]), &leaves(&sources));
    assert!(wrong.is_empty(), "{fixture}: sources{wrong:#?}");
    let token = json!({"key": "CI_JOB_TOKEN", "value": "test-job-token", "public": false,
        "file": false, "masked": false, "raw": false});
    assert_eq!(spec["variables"][1], token, "{fixture}");
    assert_eq!(spec["timeout_secs"], 7200, "{fixture}");
}

/// A step as upstream writes it.
fn written(name: &str, script: &[&str], when: &str) -> Value {
    json!({"name": name, "script": script, "when": when})
}

/// A step as the node takes it.
fn taken(name: &str, script: &[&str], when: &str) -> Value {
    json!({"name": name, "script": script, "timeout_secs": 0, "when": when,
        "allow_failure": false})
}

/// PORT-02, PORT-03, PORT-04, PORT-05
#[test]
fn upstreams_support_fixtures_are_translated() {
    type Steps = &'static [(&'static str, &'static [&'static str], &'static str)];
    let multi: Steps = &[
        ("script", &["echo Hello World"], "always"),
        ("release", &["echo Release"], "on_success"),
        ("after_script", &["echo After Script"], "always"),
    ];
    let rows: [(&str, Steps); 5] = [
        (
            "GetSuccessfulBuild",
            &[("script", &["echo Hello World"], "always")],
        ),
        (
            "GetSuccessfulMultilineCommandBuild",
            &[("script", &["echo \"Hello\nWorld\""], "always")],
        ),
        ("GetRemoteSuccessfulMultistepBuild", multi),
        ("GetFailedBuild", &[("script", &["exit 1"], "always")]),
        (
            "getBuildResponse",
            &[(
                "script",
                &["if true; then\n\techo 'Hello World'\nfi\n"],
                "always",
            )],
        ),
    ];
    for (fixture, steps) in rows {
        let of = |step: fn(&str, &[&str], &str) -> Value| {
            let steps = steps
                .iter()
                .map(|(name, script, when)| step(name, script, when));
            Value::Array(steps.collect())
        };
        assert_spec(fixture, &of(written), &of(taken));
    }
}

/// PORT-06, SPEC-59
#[test]
fn upstreams_run_fixture_is_refused() {
    let mut response = response(&json!([{"name": "run"}]));
    response["run"] = json!("[{\"name\":\"hello\",\"script\":\"echo hello\"}]");
    let (class, lines) = refused(&response);
    assert_eq!(class, FailureClass::Configuration);
    assert!(lines.contains("`run:`"), "{lines}");
}
