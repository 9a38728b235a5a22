//! What must be so once every job is over.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::feed::Feed;
use crate::program::eventually;

/// More than GitLab waits for a sign of a running job.
const HOURS: u64 = 3;

/// Each job has one end, both stand-ins agree about it, and nothing of any is left.
pub(crate) fn check(bench: &mut Bench, feed: &Feed) {
    let (calls, hit) = bench.faults();
    bench.lab.ask(&json!({ "cmd": "clear_faults" }));
    let all: u64 = hit.iter().sum();
    crate::say(&format!("soak: {all} of {calls} calls were hit: {hit:?}"));
    assert!(
        hit.iter().all(|hit| *hit > 0),
        "each fault has hit: {hit:?}"
    );
    let share = all as f64 / calls as f64;
    assert!((0.02..0.08).contains(&share), "{all} of {calls} were hit");

    check_hub(bench, feed);
    eventually("no job is kept", || bench.kept().is_empty().then_some(()));
    only_orphans(bench, feed);

    // Those are GitLab's to end.
    bench
        .lab
        .ask(&json!({ "cmd": "advance", "secs": HOURS * 3600 }));
    let totals = bench.lab.ask(&json!({ "cmd": "totals" }))["totals"].take();
    let failed = feed.failing() + feed.orphans.len();
    let mut ends = json!({ "success": feed.ended.len() - feed.failing() });
    if failed > 0 {
        ends["failed"] = failed.into();
    }
    assert_eq!(totals["jobs"], ends);
    assert_eq!(totals["handed_out"], feed.over());
    crate::say(&format!("soak: {} orphans; {totals}", feed.orphans.len()));
}

/// The hub had each job once that the daemon had, and each was settled.
fn check_hub(bench: &Bench, feed: &Feed) {
    let unsettled = || bench.hub.look(|state| state.jobs.len());
    eventually("every job is settled", || (unsettled() == 0).then_some(()));
    bench.hub.look(|state| {
        let at_once = state.at_once.as_ref().unwrap();
        let again: Vec<_> = at_once
            .came
            .iter()
            .filter(|(_, times)| **times > 1)
            .collect();
        assert!(again.is_empty(), "given to the hub again: {again:?}");
        let came: BTreeSet<u64> = at_once.came.keys().copied().collect();
        let wrong: Vec<_> = came.symmetric_difference(&feed.ended).collect();
        assert!(wrong.is_empty(), "at the hub or at GitLab alone: {wrong:?}");
        let left: Vec<_> = came.symmetric_difference(&at_once.settled).collect();
        assert!(left.is_empty(), "not settled: {left:?}");
    });
}

/// Nothing is held against the daemon but jobs whose answers were lost on purpose.
fn only_orphans(bench: &Bench, feed: &Feed) {
    let is_orphan = |broken: &Value| broken["kind"] == "orphan" && broken["injected"] == true;
    let (orphans, wrong): (Vec<_>, Vec<_>) = bench.lab.broken().into_iter().partition(is_orphan);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let orphans: BTreeSet<u64> = orphans
        .iter()
        .map(|broken| broken["job"].as_u64().unwrap())
        .collect();
    assert_eq!(orphans, feed.orphans);
}

/// A daemon that is told to stop gives back every reservation that it holds.
pub(crate) fn check_stopped(bench: &mut Bench) {
    let ended = bench.daemon.terminate();
    assert!(ended.success(), "{ended}: {}", bench.daemon.last());
    let held = bench.hub.look(|state| state.reservations.clone());
    assert!(held.is_empty(), "reservations not given back: {held:?}");
}
