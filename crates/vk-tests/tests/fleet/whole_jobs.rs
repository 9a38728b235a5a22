//! Jobs from GitLab's queue to its records.

use crate::fleet::{Fleet, test_root};

#[test]
fn a_job_goes_through_the_fleet_and_a_failing_ones_exit_code_is_gitlabs() {
    let Some(root) = test_root("a fleet") else {
        return;
    };
    let mut fleet = Fleet::start(&root);
    let (pipeline, job) = fleet.trigger(&["cat file", "echo to the end"]);
    let ended = fleet.ended(pipeline);
    let trace = fleet.trace(job);
    println!("{trace}");
    assert_eq!(ended["status"], "success", "{trace}");
    for line in ["what the project holds", "to the end", "Job succeeded"] {
        assert!(trace.contains(line), "no {line:?} in {trace}");
    }
    assert_eq!(ended["handed_out"], 1);

    let (pipeline, job) = fleet.trigger(&["echo begun", "exit 42", "echo never"]);
    let ended = fleet.ended(pipeline);
    let trace = fleet.trace(job);
    assert_eq!(ended["status"], "failed", "{trace}");
    assert_eq!(ended["exit_code"], 42, "{trace}");
    assert_eq!(ended["failure_reason"], "script_failure");
    fleet.assert_nothing_is_left();
}
