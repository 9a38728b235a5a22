//! What must be so after the storm.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use super::draw::Way;
use super::job::{Job, STEM, Stands};
use super::{Storm, watch};
use crate::program::eventually;

/// What came of all jobs.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) ends: BTreeMap<String, usize>,
    pub(super) bytes: usize,
    pub(super) orphans: usize,
}

/// Waits until nothing of any job is anywhere, and looks at each.
pub(super) fn check(storm: &Storm) -> Sums {
    let fleet = &storm.fleet;
    eventually("the daemon has no job", || {
        let state = fleet.daemon_state();
        (!state.is_empty() && !state.contains("gitlab_job")).then_some(())
    });
    eventually("a write that was cut short is cleared away", || {
        (!fleet.path("daemon/.one.json.new").exists()).then_some(())
    });
    fleet.wait_until_nothing_is_left();
    let of_hub = eventually("the hub has settled all", || {
        let jobs = fleet.hub_jobs()?;
        let is_settled = |job: &Value| job["settled"] == true;
        jobs.iter().all(is_settled).then_some(jobs)
    });
    let mut sums = Sums::default();
    for job in storm.jobs.values() {
        let ours = |of: &&Value| of["gitlab_job"] == job.id;
        let at_hub = of_hub.iter().filter(ours).count();
        assert_eq!(watch::of_the_job(fleet, job), Vec::<String>::new());
        match &job.stands {
            Stands::Orphan => {
                assert_eq!(at_hub, 0, "job {}: nobody has it and the hub does", job.id);
                check_orphan(storm, job);
                sums.orphans += 1;
            }
            Stands::Ended(ended) => {
                assert_eq!(at_hub, 1, "{ended}");
                sums.bytes += check_end(storm, job, ended);
                let end = ended["status"].as_str().unwrap();
                *sums.ends.entry(end.to_owned()).or_default() += 1;
            }
            other => panic!("job {} is {other:?}", job.id),
        }
    }
    assert_eq!(of_hub.len(), storm.jobs.len() - sums.orphans);
    check_broken(storm);
    let log = fs::read_to_string(fleet.path("daemon.log")).unwrap();
    for word in ["panicked at", "Undelivered"] {
        assert!(!log.contains(word), "the daemon's log has {word:?}");
    }
    assert_eq!(watch::of_all_jobs(fleet, STEM), Vec::<String>::new());
    sums
}

/// Nobody heard of it, no life of the daemon ever kept it, and it never ran.
fn check_orphan(storm: &Storm, job: &Job) {
    let fleet = &storm.fleet;
    let now = fleet.lab.jobs(job.pipeline).remove(0);
    let heard = (
        &now["calls"],
        &now["handed_out"],
        now["finished_ms"].is_null(),
    );
    assert_eq!(heard, (&0.into(), &1.into(), true), "{now}");
    assert!(job.preamble.is_none(), "kept, and nobody's: {now}");
    assert_eq!(job.ran(fleet), (0, 0), "nobody has it and it ran: {now}");
    let told = watch::is_told_of(&fleet.path("daemon.log"), job.id);
    assert!(!told, "the daemon said that it keeps it: {now}");
}

/// It ran once and ended as its script says, its log is what the daemon says first and the node's
/// output, byte for byte. The bytes.
fn check_end(storm: &Storm, job: &Job, ended: &Value) -> usize {
    let fleet = &storm.fleet;
    assert_eq!(ended["handed_out"], 1, "{ended}");
    let (status, reason, code, to_its_end) = match job.way {
        Way::Succeeds | Way::Floods => ("success", None, None, 1),
        Way::Fails(code) => ("failed", Some("script_failure"), Some(code), 1),
        Way::Canceled | Way::Dropped => ("canceled", None, None, 0),
    };
    let how = (
        ended["status"].as_str(),
        ended["failure_reason"].as_str(),
        ended["exit_code"].as_u64(),
    );
    let trace = fleet.lab.trace(job.id);
    let text = String::from_utf8_lossy(&trace);
    let is_so = how == (Some(status), reason, code);
    assert!(is_so, "{:?}: {ended}: {text}", job.way);
    assert_eq!(job.ran(fleet), (1, to_its_end), "{:?}: {ended}", job.way);
    assert!(job.dropped, "its record was never seen to go: {ended}");
    let output = job.output(fleet);
    let output = fs::read(output.unwrap_or_else(|| panic!("no output of {ended}"))).unwrap();
    let preamble = job.preamble.clone().unwrap();
    assert!(preamble.contains("hook \"other\" is unknown"), "{preamble}");
    let whole = [preamble.as_bytes(), &output].concat();
    if job.way == Way::Dropped {
        assert!(whole.starts_with(&trace), "{}", differ(&trace, &whole));
    } else {
        assert!(trace == whole, "{ended}: {}", differ(&trace, &whole));
        assert!(text.contains("the value [MASKED]"), "{text}");
    }
    trace.len()
}

/// Where two logs differ, and what they have there.
fn differ(trace: &[u8], whole: &[u8]) -> String {
    let same = trace.iter().zip(whole).take_while(|(a, b)| a == b).count();
    let near = |bytes: &[u8]| {
        let end = bytes.len().min(same + 200);
        String::from_utf8_lossy(&bytes[same.saturating_sub(200)..end]).into_owned()
    };
    format!(
        "GitLab has {} bytes, the node and the daemon said {}; from byte {same} on GitLab has\n{}\n\
         and they said\n{}",
        trace.len(),
        whole.len(),
        near(trace),
        near(whole)
    )
}

/// Nothing that GitLab holds against a runner, but for what follows from a death.
fn check_broken(storm: &Storm) {
    let answer = storm
        .fleet
        .lab
        .ask(&serde_json::json!({ "cmd": "invariants" }));
    assert_eq!(answer["left_out"], 0);
    let mut after_the_end: BTreeMap<u64, usize> = BTreeMap::new();
    let mut aborted = 0;
    for broken in answer["broken"].as_array().unwrap() {
        let id = broken["job"].as_u64();
        let job = id.and_then(|id| storm.jobs.get(&id));
        match (broken["kind"].as_str().unwrap_or_default(), job) {
            // A daemon that dies with a request open closes it.
            ("aborted_job_request", _) => aborted += 1,
            ("orphan", Some(job)) if job.stands == Stands::Orphan => {}
            // A daemon that died before it kept that GitLab has the end asks GitLab first
            // (STATE-25), once in each of its lives.
            ("call_after_end", Some(job)) => {
                let times = after_the_end.entry(job.id).or_default();
                *times += 1;
                assert!(*times <= job.late_deaths, "{broken}: {times} times");
            }
            _ => panic!("broken: {broken}"),
        }
    }
    // A life has as many requests open as the runner may.
    assert!(
        aborted <= 2 * storm.lives.len(),
        "{aborted} requests were given up"
    );
}
