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

/// Writes after one job's record has changed, as the loop does them.
struct Writer {
    jobs: Vec<JobRecord>,
    texts: Vec<Arc<str>>,
    best: Duration,
}

impl Writer {
    fn of(jobs: Vec<JobRecord>) -> Writer {
        Writer {
            texts: rendered(&jobs),
            jobs,
            best: Duration::MAX,
        }
    }

    fn write(&mut self, stored: &Stored, round: usize) {
        let from = Instant::now();
        let changed = round % self.jobs.len();
        self.texts[changed] = render_job(&self.jobs[changed]).unwrap().into();
        stored.write(&assembled(&self.texts)).unwrap();
        self.best = self.best.min(from.elapsed());
    }
}

/// The best of many writes with ten jobs and with a hundred, by turns: whatever else the machine does
/// disturbs both alike.
fn compared(stored: &Stored, submitted: bool) -> (Duration, Duration) {
    let [mut few, mut many] = [10, 100].map(|jobs| Writer::of(held(jobs, submitted)));
    for round in 0..60 {
        few.write(stored, round);
        many.write(stored, round);
    }
    println!(
        "submitted {submitted}: 10 jobs {:?}, 100 jobs {:?}",
        few.best, many.best
    );
    (few.best, many.best)
}

#[test]
fn a_write_with_a_hundred_held_jobs_costs_at_most_twice_one_with_ten() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    let stored = state.file("ci");
    let (few, many) = compared(&stored, true);
    assert!(many <= few * 2, "{few:?} with ten, {many:?} with a hundred");
    // Until they are submitted, jobs have their specs, and the disk's own pace for a megabyte and a
    // half is in the figure: a measurement, for a machine that does nothing else.
    let (few, many) = compared(&stored, false);
    let is_measured = std::env::var_os("VK_LONG").is_some();
    assert!(
        !is_measured || many <= few * 2,
        "{few:?} with ten, {many:?} with a hundred"
    );
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
