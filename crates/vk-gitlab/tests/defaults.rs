//! What GitLab does not say, and what it says to the daemon alone.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may")]

use gitlab_runner_api::response::JobResponse;
use serde_json::{Value, json};
use vk_gitlab::translate::{Runner, translate};
use vk_hub_proto::job::*;

fn runner() -> Runner {
    Runner {
        url: "https://gitlab.example.com".into(),
        ca_pem: None,
        token: "glrt-t1_abcdefghijkl".into(),
        id: 7,
        output_limit: 4_194_304,
        needs_certificate: false,
        version: "0.1.0".into(),
        revision: "abcd1234".into(),
    }
}

fn translated(response: &Value) -> CiJob {
    let response: JobResponse = serde_json::from_value(response.clone()).unwrap();
    translate(&response, &runner()).unwrap().job
}

/// SPEC-02
#[test]
fn what_a_response_does_not_say_has_the_defaults_of_the_contract() {
    let job = translated(&json!({"id": 10, "token": "job-token", "artifacts": [{}],
        "cache": [{"key": "k"}], "steps": [{"name": "script"}]}));
    assert_eq!(job.timeout_secs, 7200);
    let sources = &job.sources;
    assert_eq!(
        (sources.object_format, sources.ref_type, sources.depth),
        (ObjectFormat::Sha1, RefType::Branch, 0)
    );
    let artifact = &job.artifacts[0];
    assert_eq!(
        (artifact.name.as_str(), artifact.artifact_type.as_str()),
        ("artifacts", "archive")
    );
    assert_eq!(
        (artifact.format, artifact.when),
        (ArtifactFormat::Zip, When::OnSuccess)
    );
    let cache = &job.caches[0];
    assert_eq!(
        (cache.policy, cache.when),
        (CachePolicy::PullPush, When::OnSuccess)
    );
    assert_eq!(job.steps[0].when, When::OnSuccess);
    assert_eq!(job.image, Image::default());
}

/// SPEC-20
#[test]
fn what_gitlab_says_of_its_queue_changes_no_job() {
    let job = |info: Value| translated(&json!({"id": 10, "token": "job-token", "job_info": info}));
    let said = json!({"name": "test", "time_in_queue_seconds": 77.5, "queue_size": 34,
        "queue_depth": 56, "project_jobs_running_on_instance_runners_count": "12"});
    assert_eq!(job(said), job(json!({"name": "test"})));
}

/// CFG-16
#[test]
fn a_gitlab_that_demands_certificates_of_nodes_gets_no_job_run() {
    let response = json!({"id": 10, "token": "job-token", "steps": [{"name": "script"}]});
    let response: JobResponse = serde_json::from_value(response).unwrap();
    let demanding = Runner {
        needs_certificate: true,
        ..runner()
    };
    let refused = translate(&response, &demanding).unwrap_err();
    assert_eq!(refused.class, FailureClass::Configuration);
    assert!(
        refused.lines[0]
            .starts_with("ERROR: this GitLab takes nobody without a client certificate")
    );
}
