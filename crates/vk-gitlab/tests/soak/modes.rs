//! The three GitLabs, by what a 201 commits to: of today, of the 18.5 acknowledgement window, and from
//! before it.

use serde_json::{Value, json};

use crate::Size;
use crate::bench::Bench;
use crate::hub::{Hub, State};
use crate::program::eventually;

/// The jobs that the hub has and that are not over.
fn open(hub: &Hub) -> usize {
    hub.look(|state| {
        let jobs = state.jobs.values();
        jobs.filter(|job| job.state != "finished").count()
    })
}

/// One job in GitLab, which the daemon has given to the hub; its pipeline.
pub(crate) fn submitted(bench: &Bench) -> u64 {
    let (pipeline, _) = bench.lab.trigger(&[json!({
        "name": "one", "tags": ["r0"], "script": ["true"],
        "variables": { "FF_TIMESTAMPS": "false" },
    })]);
    eventually("the hub has the job", || {
        (open(&bench.hub) == 1).then_some(())
    });
    pipeline
}

pub(crate) fn job(bench: &Bench, pipeline: u64) -> Value {
    bench.lab.jobs(pipeline).swap_remove(0)
}

/// Waits until the job of a pipeline is so.
pub(crate) fn becomes(bench: &Bench, pipeline: u64, status: &str) -> Value {
    eventually(&format!("a job is {status}"), || {
        let job = job(bench, pipeline);
        (job["status"] == status).then_some(job)
    })
}

pub(crate) fn settled(bench: &Bench) {
    eventually("every job is settled", || {
        let all = |state: &State| state.jobs.values().all(|job| job.settled);
        bench.hub.look(all).then_some(())
    });
}

/// GitLab has exactly this as a job's trace.
pub(crate) fn assert_trace(job: &Value, trace: &[u8]) {
    let crc32 = format!("{:08x}", crc32fast::hash(trace));
    let summed = ["trace_size", "trace_crc32"].map(|name| job[name].clone());
    assert_eq!(summed, [json!(trace.len()), json!(crc32)], "{job}");
}

/// What the daemon says of a job that nobody took.
const UNPLACED: &[u8] = b"\x1b[31;1mERROR: Job failed (system failure): no node of the fleet took \
    the job within 300 s\x1b[0;m\n";

/// OPEN-01, OPEN-05, ERR-32, GL-14
#[test]
fn in_each_of_gitlabs_commit_modes_jobs_succeed_and_fail_by_our_call() {
    let Some(root) = crate::root() else { return };
    let hub = crate::hub::queueing(8);
    let bench = Bench::of(&root, Size::one_runner(), hub);
    for mode in ["modern", "ack-18.5", "legacy"] {
        bench.lab.ask(&json!({ "cmd": "set", "commit_mode": mode }));
        let uncommitted = match mode {
            "ack-18.5" => "pending",
            _ => "running",
        };

        let good = submitted(&bench);
        assert_eq!(job(&bench, good)["status"], uncommitted, "{mode}");
        bench.hub.change(State::accept_all);
        becomes(&bench, good, "running");
        bench.hub.change(|state| state.finish_all("it ran\n"));
        let ended = becomes(&bench, good, "success");
        assert_eq!(ended["handed_out"], 1, "{mode}");
        assert_trace(&ended, b"it ran\n");

        let unplaced = submitted(&bench);
        assert_eq!(job(&bench, unplaced)["status"], uncommitted, "{mode}");
        bench.hub.change(|state| state.fail_all("no_capacity"));
        let ended = becomes(&bench, unplaced, "failed");
        assert_eq!(ended["handed_out"], 1, "{mode}");
        assert_eq!(ended["failure_reason"], "runner_system_failure", "{mode}");
        assert_trace(&ended, UNPLACED);
        settled(&bench);
        assert_eq!(bench.lab.broken(), Vec::<Value>::new(), "{mode}");
    }
    accepted_too_late(&bench);
}

/// A job that a node takes once the acknowledgement window is over: GitLab refuses the commit, and
/// gives the job to the runner again.
fn accepted_too_late(bench: &Bench) {
    let set = json!({ "cmd": "set", "commit_mode": "ack-18.5" });
    bench.lab.ask(&set);
    let late = submitted(bench);
    bench.lab.ask(&json!({ "cmd": "advance", "secs": 130 }));
    let id = bench.hub.look(|state| {
        let mut jobs = state.jobs.iter();
        let open = jobs.find(|(_, job)| job.state == "queued");
        open.map(|(id, _)| id.clone()).unwrap()
    });
    bench.hub.change(State::accept_all);
    let cancel = format!("POST /v1/jobs/{id}/cancel");
    let settle = format!("POST /v1/jobs/{id}/settle");
    for what in [cancel, settle] {
        eventually(&what, || {
            let asked = |state: &State| state.seen.iter().any(|seen| seen.what() == what);
            bench.hub.look(asked).then_some(())
        });
    }
    let ended = job(bench, late);
    assert_ne!(ended["status"], "running", "{ended}");
    assert_eq!(ended["handed_out"], 1, "{ended}");
    assert_trace(&ended, b"");
    eventually("the job that was made anew succeeds", || {
        bench.hub.change(|state| state.finish_all("again\n"));
        let jobs = bench.lab.jobs(late);
        let mut others = jobs.iter().filter(|job| job["id"] != ended["id"]);
        others.any(|job| job["status"] == "success").then_some(())
    });
    settled(bench);
    // GitLab ended the first by itself; nothing else is held against the daemon.
    let broken = bench.lab.broken();
    let is_first = |one: &Value| one["job"] == ended["id"] && one["kind"] == "never_finished";
    assert!(broken.len() == 1 && is_first(&broken[0]), "{broken:?}");
}
