//! Each field of the response, and where of the spec it goes.

use serde_json::{Value, json};
use vk_gitlab::translate::{Runner, translate};
use vk_hub_proto::job::JobSpec;

use super::fixture::{differences, fixture, leaves, runner, spec};
use super::rows::{assert_rows, nowhere, same};

/// SPEC-07, SPEC-08, SPEC-09, SPEC-10, SPEC-11, SPEC-12, SPEC-13, SPEC-14, SPEC-15, SPEC-16, SPEC-17, SPEC-18, SPEC-19, SPEC-20
#[test]
fn what_the_job_is() {
    assert_rows(vec![
        same("SPEC-07", "/id", "/job/id", json!(11)),
        same("SPEC-08", "/token", "/token", json!("another-token")),
        same(
            "SPEC-09",
            "/allow_git_fetch",
            "/sources/allow_fetch",
            json!(true),
        ),
        same("SPEC-10", "/job_info/name", "/job/name", json!("build")),
        same("SPEC-11", "/job_info/stage", "/job/stage", json!("deploy")),
        same(
            "SPEC-12",
            "/job_info/pipeline_id",
            "/job/pipeline_id",
            json!(21),
        ),
        same(
            "SPEC-13",
            "/job_info/project_id",
            "/job/project_id",
            json!(22),
        ),
        same(
            "SPEC-14",
            "/job_info/project_name",
            "/job/project_name",
            json!("web"),
        ),
        same(
            "SPEC-15",
            "/job_info/project_full_path",
            "/job/project_path",
            json!("acme/web"),
        ),
        same(
            "SPEC-16",
            "/job_info/namespace_id",
            "/job/namespace_id",
            json!(23),
        ),
        same(
            "SPEC-17",
            "/job_info/root_namespace_id",
            "/job/root_namespace_id",
            json!(24),
        ),
        same("SPEC-18", "/job_info/user_id", "/job/user_id", json!(25)),
        nowhere("SPEC-19", "/job_info/organization_id", json!(26)),
        nowhere("SPEC-19", "/job_info/instance_id", json!("an-instance")),
        nowhere("SPEC-19", "/job_info/instance_uuid", json!("a-uuid")),
        nowhere("SPEC-19", "/job_info/scoped_user_id", json!(27)),
        nowhere("SPEC-20", "/job_info/time_in_queue_seconds", json!(1.5)),
        nowhere(
            "SPEC-20",
            "/job_info/project_jobs_running_on_instance_runners_count",
            json!("+Inf"),
        ),
        nowhere("SPEC-20", "/job_info/queue_size", json!(28)),
        nowhere("SPEC-20", "/job_info/queue_depth", json!(29)),
    ]);
}

/// SPEC-12, SPEC-16, SPEC-17, SPEC-18, SPEC-76
#[test]
fn numbers_below_nothing_are_nothing() {
    let negative = |from, to| ("SPEC-76", from, json!(-4), vec![(to, json!(0))]);
    assert_rows(vec![
        negative("/job_info/pipeline_id", "/job/pipeline_id"),
        negative("/job_info/project_id", "/job/project_id"),
        negative("/job_info/namespace_id", "/job/namespace_id"),
        negative("/job_info/root_namespace_id", "/job/root_namespace_id"),
        negative("/job_info/user_id", "/job/user_id"),
        negative("/git_info/depth", "/sources/depth"),
        negative("/steps/0/timeout", "/steps/0/timeout_secs"),
        negative("/dependencies/0/id", "/dependencies/0/id"),
        negative(
            "/dependencies/0/artifacts_file/size",
            "/dependencies/0/artifacts_file/size",
        ),
    ]);
}

/// SPEC-21, SPEC-23, SPEC-24, SPEC-25, SPEC-26, SPEC-27, SPEC-28, SPEC-29, SPEC-30, SPEC-76
#[test]
fn what_to_check_out() {
    let refspecs = json!([
        "+refs/heads/main:refs/remotes/origin/main",
        "+refs/tags/*:refs/tags/*"
    ]);
    assert_rows(vec![
        (
            "SPEC-21",
            "/git_info/repo_url",
            json!("https://user:s3cret@gitlab.example.com/acme/app.git"),
            vec![
                (
                    "/sources/repo_url",
                    json!("https://gitlab.example.com/acme/app.git"),
                ),
                // The path comes from the URL where GitLab does not say it.
                ("/job/project_path", json!("acme/app")),
            ],
        ),
        same(
            "SPEC-23",
            "/git_info/repo_object_format",
            "/sources/object_format",
            json!("sha256"),
        ),
        nowhere("SPEC-76", "/git_info/repo_object_format", json!("")),
        same("SPEC-24", "/git_info/ref", "/sources/ref", json!("feature")),
        same("SPEC-25", "/git_info/sha", "/sources/sha", json!("cafe")),
        same(
            "SPEC-26",
            "/git_info/before_sha",
            "/sources/before_sha",
            json!("beef"),
        ),
        same(
            "SPEC-27",
            "/git_info/ref_type",
            "/sources/ref_type",
            json!("tag"),
        ),
        nowhere("SPEC-76", "/git_info/ref_type", json!("")),
        same(
            "SPEC-28",
            "/git_info/refspecs",
            "/sources/refspecs",
            refspecs,
        ),
        same("SPEC-29", "/git_info/depth", "/sources/depth", json!(20)),
        same(
            "SPEC-30",
            "/git_info/protected",
            "/sources/protected",
            json!(true),
        ),
        same(
            "SPEC-30",
            "/git_info/protected",
            "/sources/protected",
            json!(false),
        ),
    ]);
}

/// SPEC-06, SPEC-31, SPEC-32, SPEC-33, SPEC-54, SPEC-55, SPEC-61
#[test]
fn what_the_runner_is_told_and_what_stays_with_the_daemon() {
    assert_rows(vec![
        same(
            "SPEC-31",
            "/runner_info/timeout",
            "/timeout_secs",
            json!(60),
        ),
        nowhere("SPEC-32", "/runner_info/uuid", json!("the-uuid")),
        nowhere(
            "SPEC-33",
            "/inputs",
            json!([{"key": "x", "value": {"type": "string"}}]),
        ),
        nowhere(
            "SPEC-54",
            "/features",
            json!({"failure_reasons": ["image_pull_failure"]}),
        ),
        nowhere("SPEC-55", "/features", json!({"tracing": {"x": 1}})),
        nowhere(
            "SPEC-61",
            "/suspend_options",
            json!({"suspend_on_success": true}),
        ),
    ]);
}

/// SPEC-34
#[test]
fn a_variables_members_each_go_their_own_way() {
    assert_rows(vec![
        same(
            "SPEC-34",
            "/variables/0/key",
            "/variables/1/key",
            json!("OTHER"),
        ),
        same(
            "SPEC-34",
            "/variables/0/value",
            "/variables/1/value",
            json!("other"),
        ),
        same(
            "SPEC-34",
            "/variables/0/public",
            "/variables/1/public",
            json!(false),
        ),
        same(
            "SPEC-34",
            "/variables/0/file",
            "/variables/1/file",
            json!(false),
        ),
        same(
            "SPEC-34",
            "/variables/0/masked",
            "/variables/1/masked",
            json!(true),
        ),
        same(
            "SPEC-34",
            "/variables/0/raw",
            "/variables/1/raw",
            json!(false),
        ),
    ]);
}

/// SPEC-37, SPEC-76
#[test]
fn a_steps_members() {
    assert_rows(vec![
        same("SPEC-37", "/steps/0/name", "/steps/0/name", json!("build")),
        same(
            "SPEC-37",
            "/steps/1/script",
            "/steps/1/script",
            json!(["make", "make test"]),
        ),
        same(
            "SPEC-37",
            "/steps/0/timeout",
            "/steps/0/timeout_secs",
            json!(5),
        ),
        same(
            "SPEC-37",
            "/steps/0/when",
            "/steps/0/when",
            json!("on_failure"),
        ),
        same("SPEC-37", "/steps/0/when", "/steps/0/when", json!("always")),
        nowhere("SPEC-76", "/steps/0/when", json!("")),
        same(
            "SPEC-37",
            "/steps/0/allow_failure",
            "/steps/0/allow_failure",
            json!(true),
        ),
    ]);
}

/// SPEC-53, SPEC-62, SPEC-64, SPEC-65, SPEC-71
#[test]
fn what_the_daemon_knows_of_the_runner() {
    type Row = (&'static str, fn(&mut Runner), &'static str, Value);
    let rows: [Row; 8] = [
        (
            "SPEC-64",
            |runner| runner.url = "https://other.example.com".to_owned(),
            "/server_url",
            json!("https://other.example.com"),
        ),
        (
            "SPEC-62",
            |runner| runner.ca_pem = Some("another CA".to_owned()),
            "/server_ca_pem",
            json!("another CA"),
        ),
        (
            "SPEC-62",
            |runner| runner.ca_pem = None,
            "/server_ca_pem",
            Value::Null,
        ),
        (
            "SPEC-53",
            |runner| runner.output_limit = 1024,
            "/trace/limit_bytes",
            json!(1024),
        ),
        (
            "SPEC-65",
            |runner| runner.id = 8,
            "/job/runner_id",
            json!(8),
        ),
        (
            "SPEC-71",
            |runner| runner.token = "glrt-t2_zyxwvutsrqpo".into(),
            "/variables/0/value",
            json!("zyxwvutsr"),
        ),
        (
            "SPEC-71",
            |runner| runner.version = "9.9.9".to_owned(),
            "/variables/2/value",
            json!("9.9.9"),
        ),
        (
            "SPEC-71",
            |runner| runner.revision = "ffffffff".to_owned(),
            "/variables/3/value",
            json!("ffffffff"),
        ),
    ];
    let response = serde_json::from_value(fixture()).unwrap();
    for (clause, change, to, value) in rows {
        let mut runner = runner();
        change(&mut runner);
        let job = translate(&response, &runner).unwrap().job;
        let found = serde_json::to_value(JobSpec::GitlabCi(Box::new(job))).unwrap();
        let mut expected = leaves(&spec(&fixture()));
        match value {
            Value::Null => expected.remove(to),
            value => expected.insert(to.to_owned(), value),
        };
        let wrong = differences(&leaves(&found), &expected);
        assert!(wrong.is_empty(), "{clause} {to}: {wrong:#?}");
    }
}
