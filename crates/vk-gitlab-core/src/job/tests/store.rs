//! A state file that cannot be written.

use super::fake_gitlab::{Status, status};
use super::world::{World, new_job, reservation};

/// STATE-22
#[test]
fn a_job_that_cannot_be_kept_is_failed_at_once_and_never_submitted() {
    let mut world = World::new();
    world.store_broken = true;
    world.take(new_job());
    world.pass_secs(10);
    assert_eq!(world.hub.submissions, 0);
    assert_eq!(world.gitlab.status, Status::Failed);
    assert_eq!(
        world.gitlab.reason.as_deref(),
        Some("runner_system_failure")
    );
    let trace = String::from_utf8_lossy(&world.gitlab.trace).into_owned();
    assert!(
        trace.contains("cannot write its state: no space left"),
        "{trace}"
    );
    assert_eq!(world.released, [reservation()]);
    assert!(world.removed && world.over == 1);
    assert_eq!(world.records, []);
}

/// STATE-22
#[test]
fn a_kept_job_goes_on_once_its_records_can_be_written_again() {
    let mut world = World::with(new_job());
    world.store_broken = true;
    world.hub.accept();
    world.pass_secs(60);
    assert_eq!(
        world.gitlab.calls().first().map(String::as_str),
        Some("running")
    );
    let kept = world.records.len();
    world.finish(None);
    world.pass_secs(200);
    assert_eq!(world.records.len(), kept, "nothing could be kept");
    assert_eq!(
        world.gitlab.status,
        Status::Running,
        "and nothing was promised on the strength of it"
    );
    world.store_broken = false;
    world.pass_secs(120);
    world.assert_right_end(Status::Success);
}

/// STATE-22
#[test]
fn a_slot_is_free_although_the_record_that_frees_it_could_not_be_written_at_first() {
    let mut world = World::running();
    world.gitlab.fault(status(500));
    world.finish(None);
    world.store_broken = true;
    world.pass_secs(5);
    assert!(world.gitlab.is_final());
    assert_eq!(world.over, 0, "nothing is promised before it is kept");
    world.store_broken = false;
    world.pass_secs(60);
    world.assert_right_end(Status::Success);
    assert!(world.over >= 1);
}

/// STATE-22
#[test]
fn a_job_whose_removal_cannot_be_written_is_removed_later() {
    let mut world = World::running();
    world.finish(None);
    world.pass_secs(1);
    world.store_broken = true;
    world.pass_secs(30);
    world.store_broken = false;
    world.pass_secs(120);
    world.assert_right_end(Status::Success);
}

#[test]
fn bytes_that_the_edge_does_not_hold_any_more_are_read_again() {
    let mut world = World::running();
    world.loses_bytes = 2;
    world.print("one\ntwo\n");
    world.pass_secs(30);
    assert_eq!(world.loses_bytes, 0);
    assert_eq!(world.gitlab.trace, world.whole_trace());
    world.finish(None);
    world.pass_secs(60);
    world.assert_right_end(Status::Success);
}
