//! A job that goes well.

use super::fake_gitlab::Status;
use super::world::{World, new_job, reservation};
use crate::job::{Note, Phase, Record};

/// FLOW-13, FLOW-14, ADM-14, ADM-21, STATE-03
#[test]
fn a_job_is_kept_first_and_submitted_on_its_reservation_at_once() {
    let world = World::with(new_job());
    assert!(matches!(world.records[0], Record::Taken(_)));
    let submission = world.hub.submission.as_ref().expect("submitted");
    assert_eq!(submission.reservation, Some(reservation()));
    assert_eq!(submission.place_within_secs, 300);
    assert_eq!(submission.request_id, new_job().request_id);
}

/// FLOW-17, GL-14, GL-47
#[test]
fn gitlab_is_told_nothing_before_a_node_accepted_the_job() {
    let mut world = World::with(new_job());
    world.pass_secs(250);
    assert_eq!(world.gitlab.calls(), [""; 0]);
    world.hub.accept();
    world.pass_secs(1);
    assert_eq!(world.gitlab.calls(), ["running", "patch 0+24"]);
    assert_eq!(
        world.core.record().map(|job| job.phase()),
        Some(Phase::Committed)
    );
}

/// FLOW-20, FLOW-22, FLOW-23, GL-20, GL-25, GL-30, GL-72, GL-74
#[test]
fn a_job_runs_its_whole_way() {
    let mut world = World::running();
    world.print("line one\n");
    world.pass_secs(5);
    world.print("line two\n");
    world.pass_secs(5);
    world.finish(None);
    world.pass_secs(5);
    world.assert_right_end(Status::Success);
    assert_eq!(
        world.gitlab.calls(),
        ["patch 24+9", "patch 33+9", "success"]
    );
    assert_eq!(world.over, 1);
    let milestones = [
        Note::Received,
        Note::Submitted,
        Note::Accepted,
        Note::Ended,
        Note::Reported,
        Note::Settled,
    ];
    assert_eq!(world.notes, milestones);
}

/// FLOW-22, GL-30
#[test]
fn the_final_state_waits_for_every_byte() {
    let mut world = World::running();
    world.hub.output = vec![b'x'; 3 << 20];
    world.finish(None);
    let last = world.gitlab.calls.last().cloned();
    assert_ne!(last.as_deref(), Some("success"));
    world.pass_secs(10);
    let calls = world.gitlab.calls();
    assert_eq!(calls.last().map(String::as_str), Some("success"));
    assert_eq!(calls.len(), 4, "{calls:?}");
    world.assert_right_end(Status::Success);
}

#[test]
fn a_job_that_prints_nothing_and_has_no_lines_has_an_empty_trace() {
    let mut job = new_job();
    job.preamble = String::new();
    let mut world = World::with(job);
    world.hub.accept();
    world.pass_secs(2);
    world.finish(None);
    world.pass_secs(5);
    world.assert_right_end(Status::Success);
    assert_eq!(world.gitlab.calls(), ["running", "success"]);
}
