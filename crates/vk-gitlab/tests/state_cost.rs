//! What a write of the state file costs, by how many jobs it holds.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gitlab_runner_api::response::JobResponse;
use serde_json::{Value, json};
use vk_gitlab::state::{StateDir, Stored};
use vk_gitlab::translate::{Runner, translate};
use vk_gitlab_core::job::JobRecord;
use vk_gitlab_core::state_file::{assemble, parse, render_job};
use vk_hub_proto::RelayId;
use vk_hub_proto::job::JobSpec;

const RELAY: RelayId = RelayId::from_bytes([1; 16]);
/// A large script's worth.
const SPEC_BYTES: usize = 16 * 1024;

/// A job of a large script.
fn spec(number: usize) -> JobSpec {
    let runner = Runner {
        url: "https://gitlab.example.com".into(),
        ca_pem: None,
        token: "glrt-t1_abcdefghijkl".into(),
        id: 7,
        output_limit: 4_194_304,
        needs_certificate: false,
        version: "0.1.0".into(),
        revision: "abcd1234".into(),
    };
    let script = vec!["x".repeat(SPEC_BYTES)];
    let response = json!({ "id": number, "token": "job-token",
        "steps": [{ "name": "script", "script": script }] });
    let response: JobResponse = serde_json::from_value(response).unwrap();
    JobSpec::GitlabCi(Box::new(translate(&response, &runner).unwrap().job))
}

/// Records of jobs that the hub has, or does not have yet.
fn held(jobs: usize, submitted: bool) -> Vec<JobRecord> {
    let one = |number: usize| {
        let id = format!("{number:032x}");
        let mut record = json!({ "gitlab_job": number, "job_token": "job-token",
            "request_id": id, "phase": "taken", "place_within_secs": 300, "timestamps": true,
            "placement": { "pool": "default", "labels": [],
                "envelope": { "mem_mib": 4096, "cpus": 2, "disk_bytes": 1024 } } });
        if submitted {
            record["hub_job"] = id.into();
            record["phase"] = "submitted".into();
        } else {
            record["spec"] = serde_json::to_value(spec(number)).unwrap();
        }
        record
    };
    let jobs: Vec<Value> = (1..=jobs).map(one).collect();
    let text = json!({ "relay": RELAY, "jobs": jobs }).to_string();
    parse(&text, RELAY).unwrap().jobs
}

fn rendered(jobs: &[JobRecord]) -> Vec<Arc<str>> {
    let text = |job| render_job(job).unwrap().into();
    jobs.iter().map(text).collect()
}

fn assembled(rendered: &[Arc<str>]) -> String {
    let texts = rendered.iter().map(|text| &**text);
    assemble(RELAY, texts, &BTreeMap::new()).unwrap()
}

/// The best of many: what it costs where nothing else disturbs.
fn best(mut what: impl FnMut(usize)) -> Duration {
    let time = |round| {
        let from = Instant::now();
        what(round);
        from.elapsed()
    };
    (0..31).map(time).min().unwrap()
}

/// A write after one job's record has changed, as the loop does it.
fn write(stored: &Stored, jobs: &[JobRecord]) -> Duration {
    let mut texts = rendered(jobs);
    best(|round| {
        let changed = round % jobs.len();
        texts[changed] = render_job(&jobs[changed]).unwrap().into();
        stored.write(&assembled(&texts)).unwrap();
    })
}

#[test]
fn a_write_with_a_hundred_held_jobs_costs_at_most_twice_one_with_ten() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    let stored = state.file("ci");
    let (few, many) = (
        write(&stored, &held(10, true)),
        write(&stored, &held(100, true)),
    );
    println!("10 jobs {few:?}, 100 jobs {many:?}");
    assert!(many <= few * 2, "10 jobs {few:?}, 100 jobs {many:?}");
    let (few, many) = (
        write(&stored, &held(10, false)),
        write(&stored, &held(100, false)),
    );
    println!("not submitted yet, with specs: 10 jobs {few:?}, 100 jobs {many:?}");
}

#[test]
fn a_spec_is_serialised_once_however_often_the_file_is_written() {
    let jobs = held(100, false);
    let texts = rendered(&jobs);
    let all = best(|_| drop(assembled(&rendered(&jobs))));
    let one = best(|round| {
        drop(render_job(&jobs[round % jobs.len()]));
        drop(assembled(&texts));
    });
    println!("all anew {all:?}, one anew {one:?}");
    assert!(one * 4 <= all, "all anew {all:?}, one anew {one:?}");
}
