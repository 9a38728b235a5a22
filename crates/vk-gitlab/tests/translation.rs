//! GitLab's job response, field by field, as the contract's table has it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

use gitlab_runner_api::response::JobResponse;
use serde_json::{Value, json};
use vk_gitlab::translate::{Runner, Translated, is_timestamped, translate};
use vk_hub_proto::job::*;

fn runner() -> Runner {
    Runner {
        url: "https://gitlab.example.com".into(),
        ca_pem: Some("CA".into()),
        token: "glrt-t1_abcdefghijkl".into(),
        id: 7,
        output_limit: 4_194_304,
        needs_certificate: false,
        version: "0.1.0".into(),
        revision: "abcd1234".into(),
    }
}

/// The fixture of upstream's request test, member by member.
fn fixture() -> Value {
    json!({
        "id": 10, "token": "job-token", "allow_git_fetch": false,
        "job_info": {"name": "test-job", "stage": "test", "project_id": 123,
            "project_name": "test-project"},
        "git_info": {
            "repo_url": "https://gitlab-ci-token:testTokenHere1234@gitlab.example.com/test/test-project.git",
            "ref": "main", "sha": "abcdef123456", "before_sha": "654321fedcba",
            "ref_type": "branch"},
        "runner_info": {"timeout": 3600},
        "variables": [{"key": "CI_REF_NAME", "value": "main", "public": true, "file": true,
            "raw": true}],
        "steps": [
            {"name": "script", "script": ["date", "ls -ls"], "timeout": 3600,
             "when": "on_success", "allow_failure": false},
            {"name": "after_script", "script": ["ls -ls"], "timeout": 3600, "when": "always",
             "allow_failure": true}],
        "image": {"name": "ruby:3.3", "entrypoint": ["/bin/sh"],
            "executor_opts": {"docker": {"platform": "arm64/v8"}}},
        "services": [
            {"name": "postgresql:9.5", "entrypoint": ["/bin/sh"], "command": ["sleep", "30"],
             "alias": "db-pg", "executor_opts": {"docker": {"platform": "amd64/linux"}}},
            {"name": "mysql:5.6", "alias": "db-mysql",
             "executor_opts": {"docker": {"platform": "arm"}}}],
        "artifacts": [{"name": "artifact.zip", "untracked": false, "paths": ["out/*"],
            "when": "always", "expire_in": "7d"}],
        "cache": [{"key": "$CI_COMMIT_SHA", "untracked": false, "paths": ["vendor/*"],
            "policy": "push"}],
        "credentials": [{"type": "Registry", "url": "http://registry.gitlab.example.com/",
            "username": "gitlab-ci-token", "password": "job-password"}],
        "dependencies": [{"id": 9, "name": "other-job", "token": "other-job-token",
            "artifacts_file": {"filename": "binaries.zip", "size": 13_631_488}}]
    })
}

fn translated(response: &Value) -> Translated {
    let response: JobResponse = serde_json::from_value(response.clone()).unwrap();
    translate(&response, &runner()).unwrap()
}

fn with(pointer: &str, value: Value) -> Value {
    let mut response = fixture();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    response.pointer_mut(parent).unwrap()[key] = value;
    response
}

/// PORT-01, SPEC-07, SPEC-08, SPEC-09, SPEC-10, SPEC-11, SPEC-13, SPEC-14, SPEC-21, SPEC-24, SPEC-25, SPEC-26, SPEC-27, SPEC-31
#[test]
fn the_fixture_of_upstreams_request_test_is_translated() {
    let job = translated(&fixture()).job;
    assert_eq!(
        (job.job.id, job.token.expose(), job.sources.allow_fetch),
        (10, "job-token", false)
    );
    assert_eq!(
        (job.job.name.as_str(), job.job.stage.as_str()),
        ("test-job", "test")
    );
    assert_eq!(
        (job.job.project_id, job.job.project_name.as_str()),
        (123, "test-project")
    );
    assert_eq!(
        job.sources.repo_url,
        "https://gitlab.example.com/test/test-project.git"
    );
    assert_eq!(
        job.job.project_path, "test/test-project",
        "from the URL, where it is not said"
    );
    assert_eq!(
        (job.sources.ref_name.as_str(), job.sources.ref_type),
        ("main", RefType::Branch)
    );
    let shas = (job.sources.sha.as_str(), job.sources.before_sha.as_str());
    assert_eq!(shas, ("abcdef123456", "654321fedcba"));
    assert_eq!(job.timeout_secs, 3600);
}

/// SPEC-12, SPEC-15, SPEC-16, SPEC-17, SPEC-18, SPEC-76
#[test]
fn numbers_and_paths_of_the_job_and_its_project() {
    let mut info = fixture()["job_info"].clone();
    for (key, value) in [
        ("pipeline_id", 1),
        ("namespace_id", 2),
        ("root_namespace_id", 3),
    ] {
        info[key] = value.into();
    }
    info["user_id"] = (-4).into();
    info["project_full_path"] = "acme/web".into();
    let job = translated(&with("/job_info", info)).job.job;
    assert_eq!(
        (job.pipeline_id, job.namespace_id, job.root_namespace_id),
        (1, 2, 3)
    );
    assert_eq!((job.user_id, job.project_path.as_str()), (0, "acme/web"));
}

/// SPEC-23, SPEC-27, SPEC-28, SPEC-29, SPEC-30
#[test]
fn what_to_check_out() {
    let mut git = fixture()["git_info"].clone();
    git["repo_object_format"] = "sha256".into();
    git["refspecs"] = json!(["+refs/heads/main:refs/remotes/origin/main"]);
    git["depth"] = 20.into();
    git["protected"] = true.into();
    git["ref_type"] = "tag".into();
    let sources = translated(&with("/git_info", git)).job.sources;
    assert_eq!(sources.object_format, ObjectFormat::Sha256);
    assert_eq!(
        sources.refspecs,
        ["+refs/heads/main:refs/remotes/origin/main"]
    );
    assert_eq!(
        (sources.depth, sources.protected, sources.ref_type),
        (20, Some(true), RefType::Tag)
    );
    let bare = translated(&fixture()).job.sources;
    assert_eq!(
        (bare.object_format, bare.depth, bare.protected),
        (ObjectFormat::Sha1, 0, None)
    );
}

/// FAIL-38
#[test]
fn an_unknown_timeout_is_two_hours() {
    for timeout in [json!(0), json!(-1), Value::Null] {
        let job = translated(&with("/runner_info/timeout", timeout)).job;
        assert_eq!(job.timeout_secs, 7200);
    }
}

/// SPEC-34, SPEC-35, SPEC-71
#[test]
fn the_runners_variables_stand_around_the_jobs_own() {
    let variables = translated(&fixture()).job.variables;
    let keys: Vec<&str> = variables
        .iter()
        .map(|variable| variable.key.as_str())
        .collect();
    assert_eq!(
        keys,
        [
            "CI_RUNNER_SHORT_TOKEN",
            "CI_REF_NAME",
            "CI_RUNNER_VERSION",
            "CI_RUNNER_REVISION",
            "CI_RUNNER_EXECUTABLE_ARCH"
        ]
    );
    assert_eq!(variables[0].value.expose(), "abcdefghi");
    let own = &variables[1];
    assert_eq!(
        (
            own.value.expose(),
            own.public,
            own.file,
            own.masked,
            own.raw
        ),
        ("main", true, true, false, true)
    );
    assert!(
        variables
            .iter()
            .filter(|one| one.key != "CI_REF_NAME")
            .all(|one| one.public && one.raw)
    );
}

/// SPEC-37, SPEC-76
#[test]
fn steps_keep_their_order_and_rules() {
    let steps = translated(&fixture()).job.steps;
    let script = Step {
        name: "script".into(),
        script: vec!["date".into(), "ls -ls".into()],
        timeout_secs: 3600,
        when: When::OnSuccess,
        allow_failure: false,
    };
    let after = Step {
        name: "after_script".into(),
        script: vec!["ls -ls".into()],
        when: When::Always,
        allow_failure: true,
        ..script.clone()
    };
    assert_eq!(steps, [script, after]);
    let unsaid = translated(&with(
        "/steps",
        json!([{"name": "s", "script": [], "when": ""}]),
    ));
    assert_eq!(unsaid.job.steps[0].when, When::OnSuccess);
}

/// SPEC-38, SPEC-40, SPEC-41, SPEC-42, SPEC-43, SPEC-04, SPEC-77
#[test]
fn images_and_services() {
    let job = translated(&fixture()).job;
    assert_eq!(
        (job.image.name.as_str(), job.image.entrypoint.as_slice()),
        ("ruby:3.3", &["/bin/sh".to_owned()][..])
    );
    assert_eq!(job.image.platform.as_deref(), Some("arm64/v8"));
    let services: Vec<_> = job
        .services
        .iter()
        .map(|one| (one.name.as_str(), one.platform.as_deref()))
        .collect();
    assert_eq!(
        services,
        [
            ("postgresql:9.5", Some("amd64/linux")),
            ("mysql:5.6", Some("arm"))
        ]
    );
    assert_eq!(job.services[0].command, ["sleep", "30"]);
    let full = json!({"name": "i", "alias": "db, cache  queue", "command": ["c"],
        "ports": [{"number": 80, "protocol": "", "name": "web"}, {"number": 0}],
        "variables": [{"key": "K", "value": "v"}], "pull_policy": ["always", "sometimes"],
        "executor_opts": {"docker": {"user": 1000}, "kubernetes": {"user": "other"}}});
    let Translated { job, warnings } = translated(&with("/image", full));
    assert_eq!(job.image.aliases, ["db", "cache", "queue"]);
    assert_eq!(job.image.user.as_deref(), Some("1000"));
    assert_eq!(
        job.image.ports,
        [Port {
            number: 80,
            protocol: "http".into(),
            name: Some("web".into())
        }]
    );
    assert_eq!(job.image.pull_policy, [PullPolicy::Always]);
    assert_eq!(
        warnings.iter().filter(|w| w.contains("left out")).count(),
        2,
        "{warnings:?}"
    );
    let kubernetes = json!({"name": "i", "executor_opts": {"kubernetes": {"user": "1001:1001"}}});
    assert_eq!(
        translated(&with("/image", kubernetes))
            .job
            .image
            .user
            .as_deref(),
        Some("1001:1001")
    );
}

/// SPEC-81
#[test]
fn no_image_means_the_nodes_default() {
    assert_eq!(
        translated(&with("/image", Value::Null)).job.image,
        Image::default()
    );
}

/// SPEC-05, SPEC-45
#[test]
fn artifacts_with_their_defaults_filled_in() {
    let artifact = &translated(&fixture()).job.artifacts[0];
    assert_eq!(
        (artifact.name.as_str(), artifact.format, artifact.when),
        ("artifact.zip", ArtifactFormat::Zip, When::Always)
    );
    assert_eq!(
        (artifact.artifact_type.as_str(), artifact.expire_in.as_str()),
        ("archive", "7d")
    );
    assert_eq!(artifact.paths, ["out/*"]);
    let full = json!([{"untracked": true, "exclude": ["x"], "artifact_type": "junit", "artifact_format": "gzip", "when": "on_failure"}]);
    let artifact = translated(&with("/artifacts", full)).job.artifacts[0].clone();
    assert_eq!(
        (artifact.name.as_str(), artifact.untracked, artifact.when),
        ("artifacts", true, When::OnFailure)
    );
    assert_eq!(
        (artifact.artifact_type.as_str(), artifact.format),
        ("junit", ArtifactFormat::Gzip)
    );
    assert_eq!(artifact.exclude, ["x"]);
}

/// SPEC-46, SPEC-73
#[test]
fn a_cache_key_that_expands_to_nothing_skips_the_cache_and_an_empty_one_has_a_default() {
    let Translated { job, warnings } = translated(&fixture());
    assert!(job.caches.is_empty());
    for what in ["extraction", "archiving"] {
        let said = format!("Skipping cache {what} due to empty cache key");
        assert!(warnings.contains(&said), "{warnings:?}");
    }
    let full = json!([{"key": "", "untracked": true, "paths": ["vendor/"], "policy": "pull",
        "when": "always", "fallback_keys": ["$CI_RUNNER_VERSION/x", "/"]}]);
    let Translated { job, warnings } = translated(&with("/cache", full));
    let cache = &job.caches[0];
    assert_eq!(
        (cache.key.as_str(), cache.policy, cache.when),
        ("test-job/main", CachePolicy::Pull, When::Always)
    );
    assert_eq!(cache.fallback_keys, ["0.1.0/x"]);
    assert!(cache.untracked && cache.paths == ["vendor/"]);
    assert!(
        warnings
            .iter()
            .any(|one| one.contains("could not be sanitized")),
        "{warnings:?}"
    );
}

/// SPEC-74, SPEC-75
#[test]
fn a_cache_policy_may_be_a_variable_and_no_value_stands_in_a_warning() {
    let mut response = with(
        "/cache",
        json!([{"key": "a b/../c/$SECRET", "policy": "$POLICY"}]),
    );
    response["variables"] = json!([
        {"key": "POLICY", "value": "push"}, {"key": "SECRET", "value": "s3cret/.", "masked": true}]);
    let Translated { job, warnings } = translated(&response);
    assert_eq!(
        (job.caches[0].policy, job.caches[0].key.as_str()),
        (CachePolicy::Push, "c/s3cret")
    );
    assert!(
        !warnings.is_empty() && warnings.iter().all(|one| !one.contains("s3cret")),
        "{warnings:?}"
    );
}

/// SPEC-49
#[test]
fn only_credentials_of_type_registry_count() {
    assert!(
        translated(&fixture()).job.registry_credentials.is_empty(),
        "Registry is another word"
    );
    let job = translated(&with(
        "/credentials",
        json!([{"type": "registry", "url": "r", "username": "u", "password": "p"}]),
    ))
    .job;
    assert_eq!(job.registry_credentials[0].url, "r");
    assert_eq!(job.registry_credentials[0].password.expose(), "p");
}

/// SPEC-50
#[test]
fn dependencies_with_their_files() {
    let dependencies = translated(&fixture()).job.dependencies;
    assert_eq!(
        (dependencies[0].id, dependencies[0].name.as_str()),
        (9, "other-job")
    );
    assert_eq!(dependencies[0].token.expose(), "other-job-token");
    let file = DependencyFile {
        filename: "binaries.zip".into(),
        size: 13_631_488,
    };
    assert_eq!(dependencies[0].artifacts_file, Some(file));
    let none = translated(&with(
        "/dependencies",
        json!([{"id": 9, "artifacts_file": null}]),
    ));
    assert_eq!(none.job.dependencies[0].artifacts_file, None);
}

/// SPEC-51, SPEC-52, SPEC-53
#[test]
fn how_the_trace_is_written() {
    let features =
        json!({"trace_sections": true, "token_mask_prefixes": ["acme-"], "tracing": {"x": 1}});
    let trace = translated(&with("/features", features)).job.trace;
    assert_eq!(
        trace,
        TraceOptions {
            sections: true,
            mask_prefixes: vec!["acme-".into()],
            limit_bytes: 4_194_304
        }
    );
}

/// SPEC-57
#[test]
fn hooks_around_the_checkout() {
    let hooks = json!([{"name": "pre_get_sources_script", "script": ["a"]}, {"name": "post_get_sources_script", "script": ["b"]}, {"name": "other", "script": []}]);
    let Translated { job, warnings } = translated(&with("/hooks", hooks));
    let names: Vec<HookName> = job.hooks.iter().map(|hook| hook.name).collect();
    assert_eq!(
        names,
        [
            HookName::PreGetSourcesScript,
            HookName::PostGetSourcesScript
        ]
    );
    assert!(warnings.iter().any(|one| one.contains("\"other\"")));
}

/// SPEC-62, SPEC-64
#[test]
fn server_and_ca_are_the_runners() {
    let job = translated(&fixture()).job;
    assert_eq!(job.server_url, "https://gitlab.example.com");
    assert_eq!(job.server_ca_pem.as_deref(), Some("CA"));
    assert_eq!(job.job.runner_id, 7);
}

fn refused(response: &Value) -> (FailureClass, String) {
    let response: JobResponse = serde_json::from_value(response.clone()).unwrap();
    let refused = translate(&response, &runner()).unwrap_err();
    (refused.class, refused.lines.join("\n"))
}

/// SPEC-56, SPEC-59, SPEC-68
#[test]
fn secrets_and_run_are_refused_and_empty_ones_are_none() {
    for (key, value) in [
        ("/secrets", json!({"A": {}})),
        ("/run", json!("[{\"name\":\"x\"}]")),
    ] {
        assert_eq!(
            refused(&with(key, value)).0,
            FailureClass::Configuration,
            "{key}"
        );
    }
    for (key, value) in [
        ("/secrets", json!({})),
        ("/secrets", Value::Null),
        ("/run", Value::Null),
        ("/run", json!("")),
        ("/run", json!("[]")),
    ] {
        translated(&with(key, value));
    }
}

/// SPEC-70, PORT-07
#[test]
fn unknown_executor_options_are_refused_in_upstreams_words() {
    let mut response = with(
        "/image/executor_opts",
        json!({"docker": {"blammo": "invalid"}}),
    );
    response["services"][0]["executor_opts"] = json!({"docker": {"powpow": "invalid"}, "vm": 1});
    let (class, lines) = refused(&response);
    assert_eq!(class, FailureClass::Configuration);
    assert!(lines.contains("Unsupported \"image\" options [blammo] for \"docker executor\"; supported options are [platform user]"), "{lines}");
    assert!(lines.contains("[powpow]"), "{lines}");
    assert!(lines.contains("Unsupported \"image\" options [vm] for \"executor_opts\"; supported options are [docker kubernetes]"), "{lines}");
}

/// SPEC-19, SPEC-33, SPEC-55, SPEC-61, SPEC-67, SPEC-78, SPEC-79
#[test]
fn a_response_is_read_as_leniently_as_upstream_reads_it() {
    let mut response = fixture();
    for key in [
        "artifacts",
        "cache",
        "services",
        "credentials",
        "dependencies",
        "hooks",
        "features",
    ] {
        response[key] = Value::Null;
    }
    response["inputs"] = json!([{"key": "x"}]);
    response["suspend_options"] = json!({"suspend_on_success": true});
    response["of_a_later_day"] = json!({});
    response["token"] = "x".repeat(3000).into();
    let mut info = response["job_info"].clone();
    info["project_jobs_running_on_instance_runners_count"] = "+Inf".into();
    for key in ["scoped_user_id", "time_in_queue_seconds", "organization_id"] {
        info[key] = Value::Null;
    }
    response["job_info"] = info;
    let job = translated(&response).job;
    assert_eq!(job.token.expose().len(), 3000);
    assert!(job.artifacts.is_empty() && job.services.is_empty());
    let bad_user = with(
        "/image/executor_opts",
        json!({"docker": {"user": {"id": 1}}}),
    );
    assert!(serde_json::from_value::<JobResponse>(bad_user).is_err());
}

/// SPEC-06, SPEC-54, CRED-01
#[test]
fn what_concerns_gitlab_alone_is_not_in_the_spec() {
    let mut response = with(
        "/features",
        json!({"failure_reasons": ["image_pull_failure"]}),
    );
    response["runner_info"]["uuid"] = "the-uuid".into();
    let spec = JobSpec::GitlabCi(Box::new(translated(&response).job));
    let json = serde_json::to_string(&spec).unwrap();
    for absent in [
        "image_pull_failure",
        "the-uuid",
        "glrt-",
        "testTokenHere1234",
        "jkl",
    ] {
        assert!(!json.contains(absent), "{absent} is in {json}");
    }
}

/// GL-27, GL-28, STAGE-22
#[test]
fn stamps_are_on_unless_the_jobs_variable_says_no() {
    let of = |value: Option<&str>| {
        let variables = value.map(|value| json!({"key": "FF_TIMESTAMPS", "value": value}));
        let response = with("/variables", variables.into_iter().collect());
        let response: JobResponse = serde_json::from_value(response).unwrap();
        is_timestamped(&response.variables)
    };
    assert!(of(None) && of(Some("true")) && of(Some("rubbish")));
    assert!(!of(Some("false")) && !of(Some("0")) && !of(Some("F")));
}

/// PORT-02, PORT-03, PORT-04, PORT-05
#[test]
fn upstreams_support_fixtures_are_translated() {
    let response = |steps: Value| {
        json!({"id": 1, "token": "t", "job_info": {"project_id": 1},
            "variables": [{"key": "CI_JOB_TOKEN", "value": "test-job-token"}],
            "git_info": {"repo_url": "https://gitlab.example.com/a/b.git",
                "sha": "69b18e5ed3610cf646119c3e38f462c64ec462b7",
                "before_sha": "1ea27a9695f80d7816d9e8ce025d9b2df83d0dd7", "ref": "main",
                "ref_type": "branch", "refspecs": ["+refs/heads/*:refs/origin/heads/*",
                "+refs/tags/*:refs/tags/*"], "depth": 0},
            "steps": steps, "runner_info": {"timeout": 7200}})
    };
    let script = |command: &str| json!({"name": "script", "script": [command], "when": "always"});
    let job = translated(&response(json!([script("echo Hello World")]))).job;
    assert_eq!((job.timeout_secs, job.sources.refspecs.len()), (7200, 2));
    assert!(!job.variables[1].public && job.variables[1].key == "CI_JOB_TOKEN");
    assert_eq!(
        translated(&response(json!([script("exit 1")]))).job.steps[0].script,
        ["exit 1"]
    );
    let steps = json!([script("echo Hello World"),
        {"name": "release", "script": ["echo Release"], "when": "on_success"},
        {"name": "after_script", "script": ["echo After Script"], "when": "always"}]);
    let names: Vec<String> = translated(&response(steps))
        .job
        .steps
        .into_iter()
        .map(|s| s.name)
        .collect();
    assert_eq!(names, ["script", "release", "after_script"]);
}

/// PORT-06
#[test]
fn upstreams_run_fixture_is_refused() {
    let response = json!({"id": 1, "token": "t", "job_info": {"project_id": 1},
        "run": "[{\"name\":\"hello\",\"script\":\"echo hello\"}]", "steps": [{"name": "run"}],
        "runner_info": {"timeout": 7200}});
    assert_eq!(refused(&response).0, FailureClass::Configuration);
}
