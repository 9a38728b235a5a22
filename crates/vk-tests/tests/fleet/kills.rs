//! `kill -9` in the middle of a job.

use std::path::{Path, PathBuf};

use crate::fleet::{Fleet, Party, test_root};
use crate::program::{eventually, kill};

/// Ticks of the job that is killed in its middle, ten a second.
const TICKS: usize = 60;

fn trigger(fleet: &Fleet) -> (u64, u64) {
    let script = format!(
        "i=0; while [ $i -lt {TICKS} ]; do echo tick $i.; i=$((i+1)); sleep 0.1; done; echo done"
    );
    let (pipeline, job) = fleet.trigger(&[&script]);
    // GitLab's own copy comes late while nobody watches: the node's output says how far the job is.
    eventually("the job ticks", || {
        let outputs = fleet.outputs();
        outputs
            .iter()
            .any(|output| output.contains(" tick 3."))
            .then_some(())
    });
    (pipeline, job)
}

/// Keeps the node's output of the one job that runs: another name of the file, which outlives the
/// job's directory.
fn keep_output(fleet: &Fleet, name: &str) -> PathBuf {
    let processes = fleet.job_processes();
    let (_, directory) = &processes[0];
    let kept = fleet.path(name);
    std::fs::hard_link(directory.join("output"), &kept).unwrap();
    kept
}

/// GitLab's trace is the node's output with something before and after it, byte for byte.
fn assert_holds(trace: &str, output: &Path) {
    let output = std::fs::read_to_string(output).unwrap();
    assert!(output.contains("done"), "the output is not whole: {output}");
    let at = trace.find(&output);
    let at = at.unwrap_or_else(|| panic!("the trace\n{trace}\nis not around\n{output}"));
    let (before, after) = (&trace[..at], &trace[at + output.len()..]);
    assert!(before.lines().count() <= 3, "before the output: {before}");
    assert!(after.lines().count() <= 1, "after the output: {after}");
}

/// Every tick stands there once, in order.
fn assert_ticks(trace: &str) {
    let said: Vec<&str> = trace
        .lines()
        .filter(|line| !line.contains("while"))
        .filter_map(|line| line.split_once(" tick ").map(|(_, number)| number))
        .collect();
    let wanted: Vec<String> = (0..TICKS).map(|number| format!("{number}.")).collect();
    assert_eq!(said, wanted, "{trace}");
}

#[test]
fn hub_node_and_daemon_are_killed_in_mid_job_and_nothing_is_lost_or_said_twice() {
    let Some(root) = test_root("kills") else {
        return;
    };
    let mut fleet = Fleet::start(&root);
    for party in [Party::Daemon, Party::Node, Party::Hub] {
        let (pipeline, job) = trigger(&fleet);
        let output = keep_output(&fleet, &format!("output-{job}"));
        fleet.restart(party);
        let ended = fleet.ended(pipeline);
        let trace = fleet.trace(job);
        println!("{party:?} killed: {}", ended["status"]);
        assert_eq!(ended["status"], "success", "{party:?}: {trace}");
        assert_eq!(ended["handed_out"], 1, "{party:?}");
        assert_ticks(&trace);
        assert_holds(&trace, &output);
    }
    fleet.assert_nothing_is_left();
}

#[test]
fn a_job_whose_process_is_killed_ends_interrupted() {
    let Some(root) = test_root("kills") else {
        return;
    };
    let mut fleet = Fleet::start(&root);
    let (pipeline, job) = trigger(&fleet);
    let processes = fleet.job_processes();
    assert!(!processes.is_empty(), "the job has no process");
    processes.iter().for_each(|(pid, _)| kill(*pid));
    let ended = fleet.ended(pipeline);
    let trace = fleet.trace(job);
    assert_eq!(ended["status"], "failed", "{trace}");
    assert_eq!(ended["failure_reason"], "runner_interrupted", "{trace}");
    assert!(!trace.contains("Job succeeded"), "{trace}");
    fleet.assert_nothing_is_left();
}
