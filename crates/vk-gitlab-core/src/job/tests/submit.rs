//! From a 201 to a job on the hub.

use std::time::Duration;

use vk_hub_proto::client::{CancelMode, ErrorCode};
use vk_hub_proto::job::FailureClass;

use super::fake_gitlab::Status;
use super::fake_hub::Fault;
use super::world::{WALL, World, new_job};
use crate::job::{GitLabAnswer, Note, Phase, Record};
use crate::{HubFailure, WithoutReservation};

fn unauthorized() -> HubFailure {
    HubFailure::coded(ErrorCode::Unauthorized, 401, "vk-time is off")
}

/// ADM-28
#[test]
fn a_job_that_lost_its_reservation_is_submitted_without_and_says_so() {
    let mut world = World::new();
    world.take_with(new_job(), Err(WithoutReservation::Lapsed));
    let submission = world.hub.submission.as_ref().expect("submitted");
    assert_eq!(submission.reservation, None);
    let Record::Taken(taken) = &world.records[0] else {
        panic!("not taken first");
    };
    assert_eq!(taken.without_reservation, Some(WithoutReservation::Lapsed));
}

/// ERR-17, ERR-19
#[test]
fn a_submission_is_repeated_the_same_with_growing_waits() {
    let mut world = World::new();
    for code in [ErrorCode::Internal, ErrorCode::Unavailable] {
        world.hub.fail(HubFailure::coded(code, 503, "later"));
    }
    world.hub.faults.push_back(Fault::AnswerLost);
    world.take(new_job());
    assert_eq!(world.hub.submissions, 1);
    world.pass(Duration::from_millis(999));
    assert_eq!(world.hub.submissions, 1);
    world.pass_secs(1);
    assert_eq!(world.hub.submissions, 2);
    world.pass_secs(3);
    assert_eq!(world.hub.submissions, 3);
    world.pass_secs(6);
    assert_eq!(world.hub.submissions, 4);
    assert_eq!(
        world.core.record().map(|job| job.phase()),
        Some(Phase::Submitted)
    );
}

/// ERR-19
#[test]
fn a_submission_waits_as_long_as_the_hub_asks() {
    let mut world = World::new();
    world.hub.fail(HubFailure {
        retry_after: Some(Duration::from_secs(20)),
        ..HubFailure::coded(ErrorCode::Unavailable, 503, "busy")
    });
    world.take(new_job());
    world.pass(Duration::from_millis(19_999));
    assert_eq!(world.hub.submissions, 1);
    world.pass_secs(6);
    assert_eq!(world.hub.submissions, 2);
}

/// ERR-29, STATE-21
#[test]
fn a_job_not_submitted_in_time_is_failed_and_then_stopped_and_settled() {
    let mut world = World::new();
    world.hub.faults.push_back(Fault::AnswerLost);
    for _ in 0..100 {
        world.hub.fail(HubFailure::transport("unreachable"));
    }
    world.take(new_job());
    world.pass_secs(299);
    assert_eq!(world.gitlab.calls(), [""; 0]);
    world.pass_secs(5);
    assert_eq!(world.gitlab.status, Status::Failed);
    assert_eq!(
        world.gitlab.reason.as_deref(),
        Some("runner_system_failure")
    );
    assert!(!world.gitlab.calls().contains(&"running".to_owned()));
    assert_eq!(
        world.core.record().map(|job| job.phase()),
        Some(Phase::Abandoned)
    );
    assert_eq!(world.over, 1, "its slot is free meanwhile");
    let abandoned = world
        .records
        .iter()
        .filter(|record| **record == Record::Abandoned);
    assert_eq!(abandoned.count(), 1);
    world.hub.faults.clear();
    world.hub.accept();
    world.pass_secs(60);
    assert_eq!(world.hub.cancels, [CancelMode::Immediate]);
    world.assert_dropped();
    assert_eq!(world.hub.starts, 1);
}

/// STATE-21
#[test]
fn an_abandoned_job_that_the_hub_then_refuses_is_dropped() {
    let mut world = World::new();
    for _ in 0..15 {
        world.hub.fail(HubFailure::transport("unreachable"));
    }
    for _ in 0..9 {
        world
            .hub
            .fail(HubFailure::coded(ErrorCode::Forbidden, 403, "rebound"));
    }
    world.take(new_job());
    world.pass_secs(600);
    assert_eq!(world.gitlab.status, Status::Failed);
    world.assert_dropped();
}

/// ERR-30, STATE-09, STATE-21
#[test]
fn a_401_says_nothing_of_a_job_that_the_hub_may_hold_from_an_earlier_try() {
    for earlier in ["life", "try"] {
        let mut world = World::new();
        world.hub.faults.push_back(Fault::AnswerLost);
        world.take(new_job());
        if earlier == "life" {
            world.crash();
            assert_eq!(world.core.record().unwrap().phase(), Phase::Taken);
        }
        for _ in 0..3 {
            world.hub.fail(unauthorized());
        }
        world.pass_secs(10);
        assert_eq!(
            world.gitlab.status,
            Status::Failed,
            "after an earlier {earlier}"
        );
        let reason = world.gitlab.reason.as_deref();
        assert_eq!(reason, Some("runner_system_failure"));
        assert_eq!(world.core.record().unwrap().phase(), Phase::Abandoned);
        world.hub.accept();
        world.pass_secs(400);
        assert_eq!(world.hub.cancels, [CancelMode::Immediate]);
        world.assert_dropped();
    }
}

/// ERR-30, STATE-21
#[test]
fn an_abandoned_job_is_not_let_go_for_a_401() {
    let mut world = World::new();
    world.hub.faults.push_back(Fault::AnswerLost);
    for _ in 0..14 {
        world.hub.fail(HubFailure::transport("unreachable"));
    }
    for _ in 0..3 {
        world.hub.fail(unauthorized());
    }
    world.take(new_job());
    world.pass_secs(310);
    assert_eq!(world.gitlab.status, Status::Failed);
    world.hub.accept();
    world.pass_secs(600);
    assert_eq!(world.hub.cancels, [CancelMode::Immediate]);
    world.assert_dropped();
}

/// ERR-30
#[test]
fn a_first_submission_that_is_refused_with_401_leaves_nothing_to_stop() {
    let mut world = World::new();
    world.hub.fail(unauthorized());
    world.take(new_job());
    world.pass_secs(10);
    assert_eq!(world.hub.submissions, 1);
    world.assert_right_end(Status::Failed);
}

/// ERR-30, STATE-21
#[test]
fn other_refusals_after_an_earlier_try_say_that_the_hub_holds_nothing() {
    use ErrorCode::{ApprovalPending, Conflict, Forbidden, NotFound, TooLarge};
    for (code, status) in [
        (ApprovalPending, 403),
        (Forbidden, 403),
        (NotFound, 404),
        (Conflict, 409),
        (NotFound, 410),
        (TooLarge, 413),
    ] {
        let mut world = World::new();
        world.hub.fail(HubFailure::transport("cut"));
        world.take(new_job());
        world.crash();
        world.hub.fail(HubFailure::coded(code, status, "no"));
        world.pass_secs(10);
        assert_eq!(world.hub.submissions, 2, "{code:?}");
        world.assert_right_end(Status::Failed);
    }
}

/// STATE-05, STATE-20
#[test]
fn a_job_kept_but_not_submitted_is_submitted_under_its_id_after_a_restart() {
    let mut world = World::new();
    world.crash_at = Some(1);
    world.take(new_job());
    world.pump();
    let submission = world.hub.submission.as_ref().expect("submitted");
    assert_eq!(submission.request_id, new_job().request_id);
}

/// STATE-20
#[test]
fn a_request_id_the_hub_may_have_forgotten_is_not_used_again() {
    let mut job = new_job();
    job.taken_at = WALL - 23 * 3600 - 1;
    let mut world = World::new();
    world.crash_at = Some(1);
    world.take(job);
    world.pass_secs(10);
    assert_eq!(world.hub.submissions, 0);
    assert_eq!(world.gitlab.status, Status::Failed);
    world.assert_dropped();
}

/// STATE-20
#[test]
fn the_spec_is_dropped_once_the_hub_has_the_job() {
    let world = World::with(new_job());
    let job = world.core.record().expect("a job");
    assert_eq!(job.taken.spec, None);
    assert!(job.hub_job.is_some());
}

/// STATE-20, FAIL-19
#[test]
fn a_job_that_ended_lost_is_reported_and_never_submitted_again() {
    let mut world = World::running();
    world.print("working\n");
    world.finish(Some(FailureClass::Lost));
    world.pass_secs(10);
    world.assert_right_end(Status::Failed);
    assert_eq!(
        world.gitlab.reason.as_deref(),
        Some("runner_system_failure")
    );
    assert_eq!(world.hub.submissions, 1);
    let trace = String::from_utf8_lossy(&world.gitlab.trace).into_owned();
    assert!(
        trace.ends_with("working\nERROR: Job failed (system failure): the job's node was lost\n"),
        "{trace}"
    );
}

/// FAIL-19
#[test]
fn a_job_the_hub_has_forgotten_is_failed_and_dropped() {
    let mut world = World::running();
    world.print("working\n");
    world.pass_secs(5);
    world.hub.forgotten = true;
    world.pass_secs(120);
    assert_eq!(world.gitlab.status, Status::Failed);
    assert!(world.notes.contains(&Note::LostByHub));
    assert!(world.gitlab.output.is_some());
    world.assert_dropped();
}

/// STATE-21
#[test]
fn an_abandoned_job_is_stopped_at_the_hub_while_gitlab_does_not_answer() {
    let mut world = World::new();
    world.hub.slow_cancel = true;
    for _ in 0..15 {
        world.hub.fail(HubFailure::transport("unreachable"));
    }
    for _ in 0..50 {
        world.gitlab.fault(GitLabAnswer::default());
    }
    world.take(new_job());
    world.pass_secs(500);
    assert_eq!(world.gitlab.status, Status::Running, "not told yet");
    assert_eq!(world.hub.cancels, [CancelMode::Immediate]);
    assert_eq!(world.hub.settles, 0, "nor settled");
    world.gitlab.faults.clear();
    world.finish(Some(FailureClass::Canceled));
    world.pass_secs(3600);
    assert_eq!(world.gitlab.status, Status::Failed);
    world.assert_dropped();
}

/// API-48, ERR-13, ERR-30, STATE-21
#[test]
fn a_job_that_the_hub_holds_with_another_body_is_stopped_and_settled() {
    let mut story_ends = Vec::new();
    for crash_at in [None, Some(1), Some(2), Some(3), Some(4), Some(5)] {
        let mut world = World::new();
        world.hub.slow_cancel = true;
        // The first try arrives; what follows has another body.
        world.hub.faults.push_back(Fault::AnswerLost);
        world.hub.conflicts = true;
        world.crash_at = crash_at;
        world.take(new_job());
        world.hub.accept();
        world.print("it runs\n");
        world.pass_secs(60);
        assert_eq!(world.gitlab.status, Status::Failed);
        let reason = world.gitlab.reason.as_deref();
        assert_eq!(reason, Some("runner_system_failure"));
        let trace = String::from_utf8_lossy(&world.gitlab.trace).into_owned();
        assert_eq!(trace.matches("ERROR").count(), 1, "{trace}");
        // A crash in the middle of a step, which no edge makes, loses the reason.
        assert!(crash_at.is_some() || trace.contains("with another body"));
        assert!(!trace.contains("it runs"), "{trace}");
        assert_eq!(world.hub.cancels, [CancelMode::Immediate]);
        assert_eq!(world.hub.settles, 0, "it still runs");
        world.finish(Some(FailureClass::Canceled));
        world.pass_secs(120);
        assert_eq!(world.hub.starts, 1);
        assert!(world.hub.settled, "killed at {crash_at:?}");
        world.assert_dropped();
        story_ends.push(world.records.len());
    }
    assert!(story_ends[0] > 5, "{story_ends:?}");
}

/// ERR-13, ERR-30
#[test]
fn a_conflict_that_names_no_job_fails_it_and_a_job_that_another_code_names_is_not_taken() {
    for (code, status) in [(ErrorCode::Conflict, 409), (ErrorCode::Forbidden, 403)] {
        let mut world = World::new();
        let job = (status == 403).then_some(super::fake_hub::HUB_JOB);
        world.hub.fail(HubFailure {
            job,
            ..HubFailure::coded(code, status, "no")
        });
        world.take(new_job());
        world.pass_secs(30);
        assert_eq!(world.gitlab.status, Status::Failed);
        assert_eq!(world.hub.cancels, []);
        world.assert_dropped();
    }
}
