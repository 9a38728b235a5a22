//! `kill -9` in the middle of a job, which is a process of the agent or a real VM.

use std::path::{Path, PathBuf};

use crate::fleet::{Fleet, Party, test_root};
use crate::program::{eventually, kill, run};
use crate::settings::Settings;

/// Ticks of the job that is killed in its middle, ten a second.
const TICKS: usize = 40;

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

/// GitLab's trace is the node's output, byte for byte: the daemon has nothing to say before it or
/// behind it.
fn assert_is(trace: &str, output: &Path) {
    let output = std::fs::read_to_string(output).unwrap();
    assert_eq!(trace, output);
}

/// Every tick stands there once, in order; `all` of them or the first ones.
fn assert_ticks(trace: &str, all: bool) {
    let said: Vec<&str> = trace
        .lines()
        .filter(|line| !line.contains("while"))
        .filter_map(|line| line.split_once(" tick ").map(|(_, number)| number))
        .collect();
    let wanted: Vec<String> = (0..TICKS).map(|number| format!("{number}.")).collect();
    assert_eq!(said, wanted[..said.len()], "{trace}");
    assert_eq!(said.len() == TICKS, all, "{trace}");
}

/// What runs of a job is seen where what is left of one is looked for.
fn assert_seen(fleet: &Fleet, program: &str) {
    let seen = fleet.processes_of_jobs();
    let is_there = seen.iter().any(|process| process.contains(program));
    assert!(is_there, "no {program} among {seen:#?}");
}

fn parties_die_in_mid_job(root: &Path, settings: &Settings, guest: &str) {
    let mut fleet = Fleet::with(root, settings);
    for party in [Party::Daemon, Party::Node, Party::Hub] {
        let (pipeline, job) = trigger(&fleet);
        assert_seen(&fleet, guest);
        let output = keep_output(&fleet, &format!("output-{job}"));
        fleet.restart(party);
        let ended = fleet.ended(pipeline);
        let trace = fleet.trace(job);
        println!("{party:?} killed: {}", ended["status"]);
        assert_eq!(ended["status"], "success", "{party:?}: {trace}");
        assert_eq!(ended["handed_out"], 1, "{party:?}");
        assert_ticks(&trace, true);
        assert_is(&trace, &output);
        fleet.assert_nothing_is_left();
    }
}

fn a_job_process_dies_in_mid_job(root: &Path, settings: &Settings, guest: &str) {
    let mut fleet = Fleet::with(root, settings);
    let (pipeline, job) = trigger(&fleet);
    assert_seen(&fleet, guest);
    let output = keep_output(&fleet, "output");
    let processes = fleet.job_processes();
    assert!(!processes.is_empty(), "the job has no process");
    processes.iter().for_each(|(pid, _)| kill(*pid));
    let ended = fleet.ended(pipeline);
    let trace = fleet.trace(job);
    println!("the job's process killed: {}", ended["failure_reason"]);
    assert_eq!(ended["status"], "failed", "{trace}");
    assert_eq!(ended["failure_reason"], "runner_interrupted", "{trace}");
    assert!(!trace.contains("Job succeeded"), "{trace}");
    assert_ticks(&trace, false);
    assert_is(&trace, &output);
    fleet.assert_nothing_is_left();
}

/// FAIL-34
///
/// A host that restarts takes the node's daemon and all of a job at once, and comes back as another
/// start of it: programs with kill points take their word of that from `VK_TEST_BOOT_ID`.
#[test]
fn a_job_whose_host_is_restarted_ends_interrupted_and_says_so() {
    let Some(root) = test_root("the host is restarted") else {
        return;
    };
    let mut fleet = Fleet::start(&root);
    fleet.set_environment("VK_TEST_BOOT_ID", "the first start");
    fleet.restart(Party::Node);
    fleet.wait_for_node();
    let (pipeline, job) = trigger(&fleet);
    let output = keep_output(&fleet, "output");
    let processes = fleet.job_processes();
    fleet.stop(Party::Node);
    processes.iter().for_each(|(pid, _)| kill(*pid));
    eventually("the job's processes end", || {
        fleet.processes_of_jobs().is_empty().then_some(())
    });

    fleet.set_environment("VK_TEST_BOOT_ID", "the second start");
    fleet.restart(Party::Node);
    let ended = fleet.ended(pipeline);
    let trace = fleet.trace(job);
    assert_eq!(ended["failure_reason"], "runner_interrupted", "{trace}");
    assert_eq!(ended["handed_out"], 1, "{trace}");
    let last = trace.trim_end().lines().last().unwrap();
    let known = "the job's process on its node ended without a result: the node's host was \
                 restarted";
    assert!(last.contains(known), "{trace}");
    assert!(!trace.contains("Job succeeded"), "{trace}");
    assert_ticks(&trace, false);
    assert_is(&trace, &output);
    fleet.assert_nothing_is_left();

    let (pipeline, job) = fleet.trigger(&["echo here again"]);
    let ended = fleet.ended(pipeline);
    assert_eq!(ended["status"], "success", "{}", fleet.trace(job));
    fleet.assert_nothing_is_left();
}

#[test]
fn a_node_that_is_removed_in_mid_job_loses_the_job_and_may_join_again() {
    let Some(root) = test_root("a node is removed") else {
        return;
    };
    let mut fleet = Fleet::start(&root);
    let (pipeline, job) = trigger(&fleet);
    let node = fleet.enrolled("nodes").unwrap().remove(0);
    run(&mut fleet.hub_command(&["nodes", "remove", &node]));
    eventually("the node's daemon gives up", || {
        fleet.has_ended(Party::Node).then_some(())
    });
    let ended = fleet.ended_of(pipeline);
    let trace = fleet.trace(job);
    assert_eq!(ended["failure_reason"], "runner_system_failure", "{trace}");
    assert!(trace.contains("the job's node was lost"), "{trace}");
    // Nobody stops it any more; it comes to its own end.
    eventually("the job's processes end", || {
        fleet.processes_of_jobs().is_empty().then_some(())
    });
    let refused = fleet.node_is_refused_to_join_again().unwrap();
    assert!(refused.contains("gives them up"), "{refused}");
    std::fs::remove_file(fleet.path("node/node/journal")).unwrap();
    std::fs::remove_dir_all(fleet.path("node/node/jobs")).unwrap();
    fleet.join_node_again();
    fleet.restart(Party::Node);
    let (pipeline, job) = fleet.trigger(&["echo here again"]);
    let ended = fleet.ended(pipeline);
    assert_eq!(ended["status"], "success", "{}", fleet.trace(job));
    fleet.assert_nothing_is_left();
}

/// A real VM, as users have it.
fn real() -> Settings {
    Settings {
        programs: "bin",
        ..Settings::default()
    }
}

/// FAIL-22, STATE-04
#[test]
fn hub_node_and_daemon_are_killed_in_mid_job_and_nothing_is_lost_or_said_twice() {
    if let Some(root) = test_root("kills") {
        parties_die_in_mid_job(&root, &Settings::default(), "vk-agent");
    }
}

/// FAIL-34
#[test]
fn a_job_whose_process_is_killed_ends_interrupted() {
    if let Some(root) = test_root("kills") {
        a_job_process_dies_in_mid_job(&root, &Settings::default(), "vk-agent");
    }
}

/// FAIL-22, STATE-04
#[test]
fn hub_node_and_daemon_are_killed_while_a_vm_runs_and_nothing_is_lost_or_said_twice() {
    if let Some(root) = test_root("kills with a VM") {
        parties_die_in_mid_job(&root, &real(), "qemu-system");
    }
}

/// FAIL-34
#[test]
fn a_vms_job_whose_process_is_killed_ends_interrupted_and_its_vm_with_it() {
    if let Some(root) = test_root("kills with a VM") {
        a_job_process_dies_in_mid_job(&root, &real(), "qemu-system");
    }
}
