//! The state file's tests.

use serde_json::{Value, json};
use vk_hub_proto::client::{Envelope, Placement};
use vk_hub_proto::job::{CiJob, JobSpec};
use vk_hub_proto::{JobId, RelayId, RequestId, ReservationId};

use super::*;
use crate::job::{Closing, Ended, Record, SafePoint, Taken, WhyGivenUp};

fn relay() -> RelayId {
    RelayId::from_bytes([1; 16])
}

fn spec() -> JobSpec {
    let json = json!({
        "kind": "gitlab_ci",
        "server_url": "https://gitlab.example.com",
        "job": {"id": 77, "name": "build", "stage": "test", "pipeline_id": 1, "project_id": 12,
                "project_name": "web", "project_path": "acme/web", "namespace_id": 2,
                "root_namespace_id": 2, "user_id": 3, "runner_id": 4},
        "token": "glcbt-secret",
        "timeout_secs": 3600,
        "sources": {"repo_url": "https://gitlab.example.com/acme/web.git", "object_format": "sha1",
                    "ref": "main", "ref_type": "branch", "sha": "a", "before_sha": "b",
                    "depth": 20, "allow_fetch": true},
        "image": {"name": "debian:12"},
        "steps": [],
        "trace": {"sections": true, "limit_bytes": 0}
    });
    serde_json::from_value(json).expect("a spec")
}

fn taken(gitlab_job: u64) -> Taken {
    Taken {
        gitlab_job,
        job_token: "glcbt-secret".into(),
        request_id: RequestId::from_bytes([7; 16]),
        reservation: Some(ReservationId::from_bytes([4; 16])),
        without_reservation: None,
        place_within_secs: 300,
        placement: Placement {
            pool: "ci".parse().expect("a name"),
            labels: Vec::new(),
            envelope: Envelope {
                mem_mib: 4096,
                cpus: 2,
                disk_bytes: 0,
            },
        },
        spec: Some(Box::new(spec())),
        preamble: "policy\n".to_owned(),
        failure_reasons: vec!["runner_interrupted".to_owned()],
        debug_trace: true,
        timestamps: false,
        taken_at: 1_790_000_000,
        token_ends: Some(1_790_003_900),
        unknown: BTreeMap::new(),
    }
}

fn job(records: Vec<Record>) -> JobRecord {
    records
        .into_iter()
        .try_fold(None, JobRecord::add)
        .expect("fits")
        .expect("a job")
}

fn ended() -> Record {
    Record::Ended(Ended {
        success: false,
        failure_reason: Some("script_failure".to_owned()),
        exit_code: Some(3),
        lines: vec!["ERROR: x".to_owned()],
        at: 1_790_000_100,
    })
}

fn closing(offset: u64, supposed: bool) -> Record {
    Record::Closing(Closing {
        offset,
        supposed,
        exact: !supposed,
    })
}

/// A job at each of its ways' stations.
fn stations() -> Vec<JobRecord> {
    let start = || vec![Record::Taken(Box::new(taken(77)))];
    let submitted = Record::Submitted {
        hub_job: JobId::from_bytes([9; 16]),
    };
    let patched = Record::Patched(SafePoint {
        offset: 120,
        crc: 0xdead_beef,
    });
    let suffix = Record::Suffix {
        text: "ERROR: x\n".to_owned(),
    };
    let ways = [
        vec![
            submitted.clone(),
            Record::Committed,
            patched,
            ended(),
            suffix.clone(),
            closing(100, false),
            Record::Reported { delivered: true },
        ],
        vec![
            Record::Refused,
            ended(),
            suffix.clone(),
            Record::Reported { delivered: false },
        ],
        vec![
            Record::Abandoned,
            ended(),
            suffix,
            submitted.clone(),
            closing(24, true),
            closing(99, true),
        ],
        vec![
            submitted,
            Record::Committed,
            Record::GivenUp {
                why: WhyGivenUp::Canceled,
            },
        ],
    ];
    let mut stations = vec![job(start())];
    for way in ways {
        let mut records = start();
        for record in way {
            records.push(record);
            stations.push(job(records.clone()));
        }
    }
    stations
}

fn read(text: &str) -> StateFile {
    parse(text, relay()).expect("reads")
}

/// STATE-18, STATE-23, GL-28, FAIL-27
#[test]
fn every_station_of_a_job_survives_the_file() {
    let none = BTreeMap::new();
    for station in stations() {
        let text = render(relay(), [&station], &none).expect("renders");
        assert_eq!(read(&text).jobs, [station]);
    }
}

/// The records of a job lead to it again: what a restart reads is what was kept.
#[test]
fn every_station_of_a_job_survives_its_records() {
    for station in stations() {
        assert_eq!(job(station.records()), station);
    }
}

/// STATE-02, STATE-13, STATE-18
#[test]
fn the_file_has_the_shape_that_is_written_down() {
    let text = render(
        relay(),
        [&job(vec![Record::Taken(Box::new(taken(77)))])],
        &BTreeMap::new(),
    )
    .expect("renders");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    let mut record = file["jobs"][0].clone();
    assert_eq!(record["spec"]["token"], "glcbt-secret");
    record.as_object_mut().expect("an object").remove("spec");
    assert_eq!(file["relay"], "01010101010101010101010101010101");
    assert_eq!(
        record,
        json!({
            "gitlab_job": 77,
            "job_token": "glcbt-secret",
            "request_id": "07070707070707070707070707070707",
            "reservation": "04040404040404040404040404040404",
            "place_within_secs": 300,
            "placement": {"pool": "ci", "envelope": {"mem_mib": 4096, "cpus": 2, "disk_bytes": 0}},
            "phase": "taken",
            "trace_offset": 0,
            "trace_crc": 0,
            "failure_reasons": ["runner_interrupted"],
            "debug_trace": true,
            "timestamps": false,
            "preamble": "policy\n",
            "taken_at": 1_790_000_000_u64,
            "token_ends": 1_790_003_900_u64
        })
    );
    assert!(text.contains("\n  \"jobs\": ["), "pretty-printed: {text}");
}

/// STATE-18
#[test]
fn a_record_names_its_phase() {
    let phases: Vec<Value> = stations()
        .iter()
        .map(|station| {
            let text = render(relay(), [station], &BTreeMap::new()).expect("renders");
            let file: Value = serde_json::from_str(&text).expect("JSON");
            file["jobs"][0]["phase"].clone()
        })
        .collect();
    assert_eq!(
        phases,
        [
            "taken",
            "submitted",
            "committed",
            "committed",
            "committed",
            "committed",
            "committed",
            "reported",
            "taken",
            "taken",
            "taken",
            "reported",
            "abandoned",
            "abandoned",
            "abandoned",
            "submitted",
            "submitted",
            "submitted",
            "submitted",
            "committed",
            "reported"
        ]
    );
}

/// STATE-13, STATE-14
#[test]
fn jobs_of_another_relay_are_refused_and_an_empty_file_is_not() {
    let other = RelayId::from_bytes([2; 16]);
    let none = BTreeMap::new();
    let full = render(
        other,
        [&job(vec![Record::Taken(Box::new(taken(77)))])],
        &none,
    );
    let error = parse(&full.expect("renders"), relay()).expect_err("refused");
    assert!(
        matches!(error, StateFileError::OtherRelay { jobs: 1, theirs, ours } if theirs == other && ours == relay())
    );
    let empty = render(other, [], &none).expect("renders");
    assert_eq!(read(&empty).jobs, []);
}

/// STATE-15
#[test]
fn jobs_of_a_file_from_before_relays_are_refused_and_an_empty_one_is_not() {
    let text = render(
        relay(),
        [&job(vec![Record::Taken(Box::new(taken(77)))])],
        &BTreeMap::new(),
    )
    .expect("renders");
    let mut file: Value = serde_json::from_str(&text).expect("JSON");
    file.as_object_mut().expect("an object").remove("relay");
    let error = parse(&file.to_string(), relay()).expect_err("refused");
    assert!(matches!(error, StateFileError::NoRelay { jobs: 1 }));
    assert_eq!(read(r#"{"jobs": []}"#).jobs, []);
}

/// STATE-19
#[test]
fn fields_of_a_newer_version_are_kept_in_the_file_and_in_each_record() {
    let text = render(
        relay(),
        [&job(vec![Record::Taken(Box::new(taken(77)))])],
        &BTreeMap::new(),
    )
    .expect("renders");
    let mut file: Value = serde_json::from_str(&text).expect("JSON");
    file["epoch"] = json!({"deep": [1, 2]});
    file["jobs"][0]["priority"] = json!("high");
    let read = read(&file.to_string());
    let again = render(relay(), &read.jobs, &read.unknown).expect("renders");
    let again: Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!(again, file);
}

/// STATE-19
#[test]
fn what_cannot_be_read_is_refused_and_not_lost() {
    let text = render(
        relay(),
        [&job(vec![Record::Taken(Box::new(taken(77)))])],
        &BTreeMap::new(),
    )
    .expect("renders");
    let file: Value = serde_json::from_str(&text).expect("JSON");

    assert!(matches!(
        parse("{\"jobs\": [", relay()),
        Err(StateFileError::Json { .. })
    ));
    let mut newer = file.clone();
    newer["jobs"][0]["phase"] = json!("hibernating");
    assert!(matches!(
        parse(&newer.to_string(), relay()),
        Err(StateFileError::Json { .. })
    ));
    let mut twice = file.clone();
    let record = twice["jobs"][0].clone();
    twice["jobs"].as_array_mut().expect("a list").push(record);
    assert!(matches!(
        parse(&twice.to_string(), relay()),
        Err(StateFileError::Twice { gitlab_job: 77 })
    ));
    let mut torn = file;
    torn["jobs"][0]["suffix"] = json!("lines of a job that has not ended");
    assert!(matches!(
        parse(&torn.to_string(), relay()),
        Err(StateFileError::Record { gitlab_job: 77, .. })
    ));
}

/// CRED-14
#[test]
fn a_records_debug_text_holds_no_secret() {
    let shown = format!("{:?}", job(vec![Record::Taken(Box::new(taken(77)))]));
    assert!(!shown.contains("glcbt-secret"), "{shown}");
}

/// STATE-20
#[test]
fn a_spec_is_the_same_after_the_file() {
    let text = render(
        relay(),
        [&job(vec![Record::Taken(Box::new(taken(77)))])],
        &BTreeMap::new(),
    )
    .expect("renders");
    let submission = read(&text).jobs[0].submission().expect("a submission");
    let JobSpec::GitlabCi(read) = &submission.spec;
    let JobSpec::GitlabCi(written) = spec();
    let as_json = |job: &CiJob| serde_json::to_string(job).expect("JSON");
    assert_eq!(as_json(read), as_json(&written));
}
