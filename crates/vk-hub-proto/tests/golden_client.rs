//! The exact JSON of the client API.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod golden;
mod sample;

use golden::golden;
use sample::*;
use vk_hub_proto::client::*;
use vk_hub_proto::job::*;

/// API-17, API-53, API-54
#[test]
fn capacity_request() {
    golden!(
        "capacity_request",
        CapacityRequest {
            placement: placement(),
            after: Some(41),
            wait_secs: 60
        }
    );
    let bare = Placement {
        labels: vec![],
        ..placement()
    };
    golden!(
        "capacity_request_least",
        CapacityRequest {
            placement: bare,
            after: None,
            wait_secs: 0
        }
    );
}

/// API-17
#[test]
fn capacity() {
    golden!(
        "capacity",
        Capacity {
            revision: 1_790_000_000_001,
            fits: 3,
            no_nodes: false
        }
    );
    golden!(
        "capacity_no_nodes",
        Capacity {
            revision: 1_790_000_000_001,
            fits: 0,
            no_nodes: true
        }
    );
}

/// API-19
#[test]
fn reservation_request() {
    golden!(
        "reservation_request",
        ReservationRequest {
            request_id: request(),
            placement: placement(),
            lease_secs: 90,
            wait_secs: 60
        }
    );
}

/// API-19, ADM-26
#[test]
fn reservation_grant_holds_a_duration_and_no_time() {
    golden!(
        "reservation_grant",
        ReservationGrant {
            reservation: reservation(),
            node: node(),
            envelope: envelope(),
            lease_secs: 90
        }
    );
}

#[test]
fn renew_request() {
    golden!("renew_request", RenewRequest { lease_secs: 90 });
}

/// API-26, SPEC-01, SPEC-66
#[test]
fn job_submission() {
    golden!(
        "job_submission",
        JobSubmission {
            request_id: request(),
            placement: placement(),
            reservation: Some(reservation()),
            place_within_secs: 300,
            spec: spec(),
        }
    );
    golden!("job_spec_full", JobSpec::GitlabCi(Box::new(full_job())));
}

/// API-32, API-33, API-54, API-72
#[test]
fn job_view() {
    let least = JobView {
        id: job(),
        revision: 1,
        state: JobState::Queued,
        node: None,
        stage: None,
        output_len: 0,
        cancel: None,
        result: None,
    };
    golden!("job_view_queued", least.clone());
    golden!(
        "job_view_starting",
        JobView {
            state: JobState::Starting,
            ..least.clone()
        }
    );
    golden!(
        "job_view_finished",
        JobView {
            state: JobState::Finished,
            revision: 9,
            node: Some(node()),
            stage: Some("step_script".into()),
            output_len: 1234,
            cancel: Some(CancelMode::Graceful),
            result: Some(full_result()),
            ..least
        }
    );
}

fn full_result() -> JobResult {
    JobResult {
        failure: Some(FailureClass::Script),
        exit_code: Some(42),
        message: Some("exit code 42".into()),
        output_len: 1234,
        artifacts: [
            ArtifactState::Uploaded,
            ArtifactState::Skipped,
            ArtifactState::TooLarge,
            ArtifactState::Failed,
        ]
        .map(|state| ArtifactOutcome {
            name: "artifacts".into(),
            artifact_type: "archive".into(),
            state,
        })
        .to_vec(),
        usage: Some(JobUsage {
            wall_ms: 61_000,
            cpu_ms: Some(40_000),
            peak_mem_bytes: Some(536_870_912),
            cpus: Some(2),
            mem_mib: Some(2048),
        }),
    }
}

/// DISP-54, DISP-55
#[test]
fn job_result() {
    golden!("job_result_full", full_result());
    golden!(
        "job_result_least",
        JobResult {
            failure: None,
            exit_code: None,
            message: None,
            output_len: 12,
            artifacts: vec![],
            usage: None
        }
    );
    let usage: JobUsage = serde_json::from_str("{}").unwrap();
    assert_eq!(
        usage,
        JobUsage::default(),
        "an older node's usage may lack even wall_ms"
    );
}

/// API-41
#[test]
fn cancel_request() {
    golden!(
        "cancel_graceful",
        CancelRequest {
            mode: CancelMode::Graceful
        }
    );
    golden!(
        "cancel_immediate",
        CancelRequest {
            mode: CancelMode::Immediate
        }
    );
    let unknown: CancelRequest = serde_json::from_str(r#"{"mode":"gentle"}"#).unwrap();
    assert_eq!(
        unknown.mode,
        CancelMode::Immediate,
        "an unknown mode stops the job"
    );
}

/// API-57
#[test]
fn client_hello() {
    golden!(
        "client_hello",
        ClientHello {
            name: "deploy".into(),
            version: "1.2.0".into(),
            host: Some("ci-1".into())
        }
    );
}

/// ERR-01
#[test]
fn client_error() {
    golden!(
        "client_error",
        ClientError {
            error: "no room".into(),
            code: ErrorCode::NoCapacity,
            retry_after_secs: Some(5),
            job: None
        }
    );
    golden!(
        "client_error_job",
        ClientError {
            error: "this request_id came before with another body".into(),
            code: ErrorCode::Conflict,
            retry_after_secs: None,
            job: Some(job())
        }
    );
}
