//! What the response does not say field by field: order, defaults, refusals, leniency.

use gitlab_runner_api::response::JobResponse;
use serde_json::{Value, json};
use vk_gitlab::translate::is_timestamped;
use vk_hub_proto::job::{FailureClass, Image, JobSpec};

use super::fixture::{fixture, refused, translated, with};

/// FAIL-38
#[test]
fn an_unknown_timeout_is_two_hours() {
    for timeout in [json!(0), json!(-1), Value::Null] {
        let job = translated(&with("/runner_info/timeout", timeout)).job;
        assert_eq!(job.timeout_secs, 7200);
    }
}

/// SPEC-35, SPEC-71
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

/// SPEC-81
#[test]
fn no_image_means_the_nodes_default() {
    assert_eq!(
        translated(&with("/image", Value::Null)).job.image,
        Image::default()
    );
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

/// SPEC-70
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
