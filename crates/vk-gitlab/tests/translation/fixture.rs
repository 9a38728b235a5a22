//! The job response of upstream's request test, and what becomes of it and of others.

use std::collections::BTreeMap;

use gitlab_runner_api::response::JobResponse;
use serde_json::{Value, json};
use vk_gitlab::translate::{Runner, Translated, translate};
use vk_hub_proto::job::{FailureClass, JobSpec};

pub(crate) fn runner() -> Runner {
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
pub(crate) fn fixture() -> Value {
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

pub(crate) fn translated(response: &Value) -> Translated {
    let response: JobResponse = serde_json::from_value(response.clone()).unwrap();
    translate(&response, &runner()).unwrap()
}

/// Why a job is refused: the class, and what the trace says.
pub(crate) fn refused(response: &Value) -> (FailureClass, String) {
    let response: JobResponse = serde_json::from_value(response.clone()).unwrap();
    let refused = translate(&response, &runner()).unwrap_err();
    (refused.class, refused.lines.join("\n"))
}

/// The fixture with another value at a place.
pub(crate) fn with(pointer: &str, value: Value) -> Value {
    let mut response = fixture();
    set(&mut response, pointer, value);
    response
}

/// Puts a value at a place, which need not be there.
fn set(document: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap();
    match key.parse::<usize>() {
        Ok(index) => parent[index] = value,
        Err(_) => parent[key] = value,
    }
}

/// The job spec as it goes to the hub.
pub(crate) fn spec(response: &Value) -> Value {
    let job = translated(response).job;
    serde_json::to_value(JobSpec::GitlabCi(Box::new(job))).unwrap()
}

/// Every value of a document that holds no other, by its place.
pub(crate) fn leaves(document: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    gather(document, "", &mut found);
    found
}

fn gather(value: &Value, at: &str, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                gather(value, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(values) if !values.is_empty() => {
            for (index, value) in values.iter().enumerate() {
                gather(value, &format!("{at}/{index}"), found);
            }
        }
        leaf => {
            found.insert(at.to_owned(), leaf.clone());
        }
    }
}

/// Where two documents differ: the place, what stands in the first, what in the second.
pub(crate) fn differences(
    one: &BTreeMap<String, Value>,
    other: &BTreeMap<String, Value>,
) -> Vec<String> {
    let places: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let differ = places
        .into_iter()
        .filter(|at| one.get(*at) != other.get(*at));
    differ
        .map(|at| format!("{at}: {:?}, not {:?}", one.get(at), other.get(at)))
        .collect()
}
