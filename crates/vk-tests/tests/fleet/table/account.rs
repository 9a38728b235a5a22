//! What must be so after a story.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::point::{Point, STAGES, Victim};
use super::story::{House, Story};
use super::tell::Tale;
use crate::fleet::Fleet;

/// How long a job may be about after its end: a hub that was away is asked again after up to half a
/// minute, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often the job's script began, and came to its end.
pub(super) fn ran(tale: &Tale<'_>) -> (usize, usize) {
    if tale.house == House::Machines {
        let outputs = tale.kept.outputs();
        let lines = |end: &str| {
            let all = outputs.iter().flat_map(|output| output.lines());
            all.filter(|line| line.ends_with(end)).count()
        };
        let end = format!(" job {} is at its end", tale.job);
        return (lines(" begin"), lines(&end));
    }
    let marks = fs::read_to_string(tale.mark("")).unwrap_or_default();
    let count = |word: &str| marks.lines().filter(|line| *line == word).count();
    (count("begin"), count("end"))
}

/// How the job ended for GitLab.
pub(super) fn how(job: &Value) -> String {
    let status = job["status"].as_str().unwrap_or_default();
    match job["failure_reason"].as_str() {
        Some(reason) => format!("{status}: {reason}"),
        None => status.to_owned(),
    }
}

/// Everything that must be so.
pub(super) fn check(tale: &mut Tale<'_>, job: &Value, orphan: bool) {
    wait_until_all_is_over(tale);
    let (begun, ended) = ran(tale);
    let point = tale.point;
    assert!(begun <= 1, "{point}: the script began {begun} times: {job}");
    assert_eq!(job["handed_out"], 1, "{point}: {job}");
    if orphan {
        // Until the job's first record is durable, and no longer.
        let is_before = point.core == "acquire" || point.boundary == "before";
        assert!(is_before, "{point}: a job that was kept is nobody's: {job}");
        assert_eq!(begun, 0, "{point}: nobody has the job and it ran");
        return;
    }
    let how = how(job);
    assert!(is_expected(tale, &how), "{point}: ended {how}: {job}");
    if how == "success" {
        assert_eq!((begun, ended), (1, 1), "{point}: {job}");
    }
    check_trace(tale, &how);
}

/// Waits until nothing of a job is anywhere: on the node's host, in the daemon's file, unsettled at
/// the hub.
fn wait_until_all_is_over(tale: &mut Tale<'_>) {
    let begun = Instant::now();
    loop {
        tale.look();
        let mut left = tale.fleet.left();
        let state = tale.fleet.daemon_state();
        if state.contains("gitlab_job") {
            left.push(format!("the daemon's {state}"));
        }
        let jobs = tale.fleet.hub_jobs();
        let is_settled = |job: &Value| job["settled"] == true;
        if !jobs
            .as_ref()
            .is_some_and(|jobs| jobs.iter().all(is_settled))
        {
            left.push(format!("the hub's {jobs:?}"));
        }
        // Every process of the host is looked at for it: once all else is over.
        if left.is_empty() {
            left = tale.census.left();
        }
        if left.is_empty() {
            return;
        }
        let patient = begun.elapsed() < PATIENCE;
        assert!(patient, "{}: left: {left:#?}", tale.point);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether a job of this story may end so.
fn is_expected(tale: &Tale<'_>, how: &str) -> bool {
    let system = "failed: runner_system_failure";
    match (tale.story, tale.point.victim) {
        (_, Victim::Job) => matches!(how, "failed: runner_interrupted" | "canceled"),
        (Story::Canceled | Story::Canceling, _) => how == "canceled",
        (_, victim) if victim.is_of_vm() => {
            how == if outlives_its_vm(tale.point) {
                "success"
            } else {
                system
            }
        }
        // A job of the server's other name is not this relay's.
        (Story::Renamed, _) => how == "success" || how == system,
        (Story::Orphaned, _) => how == "failed: runner_interrupted",
        (Story::Unplaced | Story::Denied, _) => how == system,
        (Story::Unapproved, _) => how == "failed: runner_configuration_error",
        // A job that no node had accepted is lost with the hub's memory (FAIL-25).
        (_, Victim::Hub) => how == "success" || (how == system && ran(tale).0 == 0),
        _ => how == "success",
    }
}

/// Whether the job was over but for cleaning up.
fn outlives_its_vm(point: Point) -> bool {
    // What else is counted, ticks of the script, comes more often than stages do.
    let is_last_stage = point.variant == "Run" && point.nth == STAGES;
    matches!(point.variant, "Finish" | "Finished") || is_last_stage
}

#[test]
fn a_tick_of_the_script_is_no_stage_that_a_job_could_outlive() {
    let tick = Point {
        victim: Victim::Agent,
        core: "",
        kind: "Tick",
        variant: "script",
        boundary: "",
        nth: STAGES,
    };
    assert!(!outlives_its_vm(tick));
    let stage = Point {
        kind: "Effect",
        variant: "Run",
        ..tick
    };
    assert!(outlives_its_vm(stage));
    assert!(!outlives_its_vm(Point { nth: 1, ..stage }));
}

/// What the log of a job says whose victim's death ended it: who died, and what is known of it.
fn says_who_died(tale: &Tale<'_>, how: &str, body: &str) -> bool {
    let words: &[&str] = match (tale.point.victim, tale.house, how) {
        (Victim::Job, _, "failed: runner_interrupted") => {
            &["the job's process on its node ended without a result"]
        }
        (Victim::Machine, House::Machines, "failed: runner_system_failure") => {
            &["the VM died: qemu ended with signal 9"]
        }
        (Victim::Machine, _, "failed: runner_system_failure") => {
            &["the VM died: process ended with the end of its holder"]
        }
        (Victim::Agent, House::Machines, "failed: runner_system_failure") => {
            &["the VM died: qemu ended", "Attempted to kill init"]
        }
        (Victim::Agent, _, "failed: runner_system_failure") => {
            &["the VM died: process ended with signal 9"]
        }
        _ => &[],
    };
    words.iter().all(|words| body.contains(words))
}

/// GitLab's log is what the daemon says first, the node's output, and behind it what the daemon says
/// of an end that the node did not say; of a job that GitLab ended it is the beginning of that.
fn check_trace(tale: &Tale<'_>, how: &str) {
    let point = tale.point;
    let trace = String::from_utf8(tale.fleet.lab.trace(tale.job)).unwrap();
    let outputs = tale.kept.outputs();
    let outputs: Vec<String> = { outputs.into_iter() }
        .filter(|output| !output.is_empty())
        .collect();
    assert!(outputs.len() <= 1, "{point}: {} outputs", outputs.len());
    let output = outputs.first().map_or("", String::as_str);
    let (preamble, body) = trace.split_at(trace.find('\n').map_or(0, |end| end + 1));
    let given_up = tale.story == Story::Canceled;
    let begins = preamble.contains("WARNING: hook \"other\" is unknown") || given_up;
    let ends = |suffix: &str, words: &str| suffix.lines().count() == 1 && suffix.contains(words);
    let suffix = body.strip_prefix(output);
    let rest = match (tale.story, how) {
        (Story::Canceled, _) => output.starts_with(body).then_some(()),
        // It was given up: what a node did with it later is not told.
        (Story::Unplaced, _) => ends(body, "did not take the job within").then_some(()),
        (Story::Unapproved, _) => {
            let both = body.lines().count() == 2 && body.contains("waiting for approval");
            (both && output.is_empty()).then_some(())
        }
        (Story::Renamed, "failed: runner_system_failure") => {
            let refused = ends(body, "the job is of another GitLab server");
            (refused && output.is_empty()).then_some(())
        }
        (_, "failed: runner_system_failure") if output.is_empty() => {
            ends(body, "the job's node was lost").then_some(())
        }
        _ => suffix.filter(|suffix| suffix.is_empty()).map(drop),
    };
    let says = says_who_died(tale, how, body);
    assert!(
        begins && rest.is_some() && says,
        "{point}: {how}: GitLab has\n{trace}\nthe node said\n{output}"
    );
}

/// What must be so of a fleet in which many stories were told: what is not.
pub(super) fn of_the_whole(fleet: &Fleet) -> Vec<String> {
    let mut after_the_end = BTreeMap::new();
    let mut wrong = Vec::new();
    for broken in fleet.lab.broken() {
        let times: &mut u32 = after_the_end.entry(broken["job"].as_u64()).or_default();
        match broken["kind"].as_str().unwrap_or_default() {
            // Orphans were looked at one by one, and a daemon that is killed with a request open
            // closes it.
            "orphan" | "aborted_job_request" => {}
            // A daemon that died before it kept that GitLab has the end asks GitLab first
            // (STATE-25), once.
            "call_after_end" if *times == 0 => *times += 1,
            _ => wrong.push(broken.to_string()),
        }
    }
    wrong
}
