//! Many runners at once, with faults by chance: what the stand-in is for under load.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::lab::Lab;
use crate::raw::{Answer, try_call};

const RUNNERS: usize = 8;
const JOBS: usize = 240;

/// A runner that does what a runner must, and no more.
struct Runner {
    addr: SocketAddr,
    token: String,
}

impl Runner {
    /// A call until it is answered with something that is no fault.
    fn until(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        loop {
            match try_call(self.addr, method, path, headers, body) {
                Some(answer) if answer.status < 429 => return answer,
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// Runs jobs until there are none; how many it ended.
    fn run(&self) -> usize {
        let kind = [("Content-Type", "application/json")];
        let ask = json!({"token": self.token, "system_id": "s"}).to_string();
        let mut ended = 0;
        loop {
            let answer = try_call(
                self.addr,
                "POST",
                "/api/v4/jobs/request",
                &kind,
                ask.as_bytes(),
            );
            match answer {
                Some(answer) if answer.status == 204 => return ended,
                Some(answer) if answer.status == 201 => {
                    self.job(&answer.json());
                    ended += 1;
                }
                _ => {}
            }
        }
    }

    fn job(&self, job: &Value) {
        let (id, token) = (job["id"].as_u64().unwrap(), job["token"].as_str().unwrap());
        let output: Vec<u8> = (0..3_000 + id * 7)
            .map(|at| b'a' + (at % 23) as u8)
            .collect();
        let path = format!("/api/v4/jobs/{id}/trace");
        let mut at = 0;
        while at < output.len() {
            let end = output.len().min(at + 1_500);
            let range = format!("{at}-{}", end - 1);
            let headers = [("JOB-TOKEN", token), ("Content-Range", range.as_str())];
            let answer = self.until("PATCH", &path, &headers, &output[at..end]);
            assert!(matches!(answer.status, 202 | 416), "{answer:?}");
            let stored = answer.header("Range").unwrap();
            at = stored.strip_prefix("0-").unwrap().parse().unwrap();
        }
        let checksum = format!("crc32:{:08x}", crc32fast::hash(&output));
        let body = json!({"token": token, "state": "success",
                          "output": {"checksum": checksum, "bytesize": output.len()}});
        let body = body.to_string();
        let answer = self.until("PUT", &format!("/api/v4/jobs/{id}"), &[], body.as_bytes());
        let told = (answer.status, answer.header("Job-Status"));
        assert!(matches!(told, (200 | 403, Some("success"))), "{told:?}");
    }
}

#[test]
fn with_every_twentieth_call_hit_each_job_ends_once_or_is_an_orphan_of_the_faults() {
    let lab = Lab::with(&["--tag", "none"], None);
    lab.admin(&json!({"cmd": "runner", "run_untagged": false}));
    lab.admin(&json!({"cmd": "set", "sum_ended_traces": true,
                      "rate_limits": {"request": 0, "trace": 0, "job": 0}}));
    let dir = lab.dir.path().join("tokens");
    std::fs::create_dir(&dir).unwrap();
    let add = json!({"cmd": "add_runners", "count": RUNNERS, "token_dir": dir});
    let added = lab.admin(&add)["runners"].clone();
    let jobs: Vec<Value> = (0..JOBS)
        .map(|at| json!({"name": format!("job {at}"), "script": ["x"]}))
        .collect();
    lab.trigger(&json!({ "jobs": jobs }));
    for (action, when) in [
        (json!({"status": 503}), "before"),
        (json!({"status": 429}), "before"),
        (json!("drop"), "before"),
        (json!("drop"), "after"),
    ] {
        lab.admin(
            &json!({"cmd": "inject", "on": "any", "action": action, "when": when,
                          "chance": 0.0125, "seed": 3}),
        );
    }
    let runners: Vec<Runner> = added
        .as_array()
        .unwrap()
        .iter()
        .map(|runner| {
            let token = std::fs::read_to_string(runner["token_file"].as_str().unwrap()).unwrap();
            let token = token.trim().to_owned();
            Runner {
                addr: lab.addr,
                token,
            }
        })
        .collect();
    let ended: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = runners
            .iter()
            .map(|runner| scope.spawn(|| runner.run()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    let hit: u64 = lab.admin(&json!({"cmd": "faults"}))["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| fault["hit"].as_u64().unwrap())
        .sum();
    assert!(hit > 20, "{hit} calls were hit");
    let totals = lab.admin(&json!({"cmd": "totals"}))["totals"].clone();
    let counted = |status: &str| totals["jobs"][status].as_u64().unwrap_or(0);
    assert_eq!(counted("success"), ended as u64);
    assert_eq!(totals["handed_out"], JOBS);
    let broken = lab.admin(&json!({"cmd": "invariants"}))["broken"].clone();
    let broken = broken.as_array().unwrap();
    assert!(
        broken
            .iter()
            .all(|b| b["kind"] == "orphan" && b["injected"] == true),
        "{broken:?}"
    );
    assert_eq!(ended + broken.len(), JOBS);
}
