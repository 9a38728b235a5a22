//! The final state.

use std::time::Duration;

use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::job::{FailureClass, JobResult};

use super::fake_gitlab::{Fault, Status, status};
use super::fake_hub::result;
use super::world::{World, new_job};
use crate::job::{GitLabAnswer, JobStatus, Note, Record};
use crate::{HubFailure, NewJob};

fn finals(world: &World) -> Vec<Duration> {
    world
        .timeline
        .iter()
        .filter(|(_, call)| call.starts_with("success") || call.starts_with("failed"))
        .map(|(at, _)| *at)
        .collect()
}

fn gaps(world: &World) -> Vec<u64> {
    finals(world)
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs())
        .collect()
}

/// Every final state that was told is the first one, byte for byte of what counts.
fn assert_repeated(world: &World, times: usize) {
    let finals = &world.gitlab.finals;
    assert_eq!(finals.len(), times);
    let first = finals.first().expect("a final state");
    assert!(first.output.is_some(), "with its checksum");
    assert!(finals.iter().all(|told| told == first), "{finals:?}");
}

/// FAIL-28
#[test]
fn the_exit_code_is_told_of_failed_scripts_alone() {
    for (failure, exit_code, told) in [
        (FailureClass::Script, Some(42), Some(42)),
        (FailureClass::Script, None, None),
        (FailureClass::Timeout, Some(1), None),
        (FailureClass::System, Some(3), None),
    ] {
        let mut world = World::running();
        world.hub.finish(JobResult {
            exit_code,
            ..result(Some(failure))
        });
        world.pass_secs(10);
        world.assert_right_end(Status::Failed);
        assert_eq!(world.gitlab.exit_code, told, "{failure:?}");
    }
}

/// GL-32, GL-54
#[test]
fn a_202_is_asked_again_after_the_interval_gitlab_names() {
    for (failure, status) in [
        (None, Status::Success),
        (Some(FailureClass::Script), Status::Failed),
    ] {
        let mut world = World::running();
        world.print("some output\n");
        world.pass_secs(5);
        world.gitlab.delays = 3;
        world.gitlab.interval = Some(8);
        world.hub.finish(JobResult {
            exit_code: failure.map(|_| 42),
            ..result(failure)
        });
        world.pass_secs(60);
        assert_eq!(gaps(&world), [8, 8, 8]);
        world.assert_right_end(status);
        assert_repeated(&world, 4);
    }
}

/// GL-32, GL-70
#[test]
fn a_202_without_an_interval_backs_off_from_three_seconds_to_an_hour() {
    let mut world = World::with(NewJob {
        token_ends: None,
        ..new_job()
    });
    world.hub.accept();
    world.gitlab.delays = 13;
    world.finish(None);
    world.pass_secs(40_000);
    assert_eq!(
        gaps(&world),
        [3, 6, 12, 24, 48, 96, 192, 384, 768, 1536, 3072, 3600, 3600]
    );
    world.assert_right_end(Status::Success);
}

/// GL-33, GL-53, GL-70
#[test]
fn a_412_sends_the_whole_trace_again_and_then_the_state() {
    let mut world = World::running();
    world.print("0123456789");
    world.pass_secs(5);
    world.gitlab.calls();
    world.gitlab.fault(status(412));
    world.finish(None);
    world.pump();
    // What answers 412 has dropped the trace.
    world.gitlab.trace.clear();
    world.pass_secs(30);
    assert_eq!(
        world.gitlab.calls(),
        ["success", "patch 0+24", "patch 24+10", "success"]
    );
    assert!(world.notes.contains(&Note::ProxySuspected { status: 412 }));
    world.assert_right_end(Status::Success);
}

/// GL-34, GL-70
#[test]
fn failures_back_off_from_a_second_to_an_hour() {
    let mut world = World::with(NewJob {
        token_ends: None,
        ..new_job()
    });
    world.hub.accept();
    world.pass_secs(1);
    for _ in 0..25 {
        world.gitlab.fault(status(502));
    }
    world.finish(None);
    world.pass_secs(80_000);
    let gaps = gaps(&world);
    let (hour, mut base) = (3600, 1);
    for gap in &gaps {
        // And up to a quarter more, so that a fleet's tries do not come together.
        assert!((base..=base + base / 4 + 1).contains(gap), "{gaps:?}");
        base = (2 * base).min(hour);
    }
    let longest = gaps.iter().filter(|gap| **gap >= hour).count();
    assert!(longest >= 10, "{gaps:?}");
    assert_repeated(&world, gaps.len() + 1);
}

/// GL-59, GL-70
#[test]
fn a_final_state_is_given_up_once_the_jobs_token_has_ended() {
    let mut world = World::running();
    for _ in 0..100 {
        world.gitlab.fault(GitLabAnswer::default());
    }
    world.finish(None);
    world.pass_secs(3800);
    assert!(!world.removed);
    world.pass_secs(3600);
    let told = &Record::Reported { delivered: false };
    assert!(world.records.contains(told), "{:?}", world.notes);
    world.assert_dropped();
}

/// GL-70
#[test]
fn without_a_known_end_of_the_token_a_final_state_is_told_for_a_day() {
    let mut job = new_job();
    job.token_ends = None;
    let mut world = World::with(job);
    world.hub.accept();
    world.pass_secs(1);
    for _ in 0..100 {
        world.gitlab.fault(GitLabAnswer::default());
    }
    world.finish(None);
    world.pass_secs(86_000);
    assert!(!world.removed, "{:?}", finals(&world).last());
    world.pass_secs(5000);
    world.assert_dropped();
}

/// GL-51
#[test]
fn a_403_with_our_own_state_or_canceled_counts_as_delivered() {
    for (end, said, delivered) in [
        (None, JobStatus::Success, true),
        (None, JobStatus::Canceled, true),
        (None, JobStatus::Failed, false),
        (Some(FailureClass::Script), JobStatus::Failed, true),
        (Some(FailureClass::Script), JobStatus::Success, false),
    ] {
        let mut world = World::running();
        world.gitlab.fault(GitLabAnswer {
            job_status: Some(said),
            ..status(403)
        });
        world.finish(end);
        world.pass_secs(10);
        assert!(
            world.records.contains(&Record::Reported { delivered }),
            "{end:?} {said:?}"
        );
        world.assert_dropped();
    }
}

/// GL-51
#[test]
fn a_final_state_whose_answer_was_lost_is_told_once_more_and_settled() {
    let mut world = World::running();
    world.gitlab.faults.push_back(Fault::AnswerLost);
    world.finish(None);
    world.pass_secs(10);
    world.assert_right_end(Status::Success);
    assert_eq!(world.gitlab.calls(), ["success", "success"]);
}

/// GL-59
#[test]
fn a_bare_403_to_the_final_state_is_logged_as_undelivered_and_settled() {
    let mut world = World::running();
    world.gitlab.fault(status(403));
    world.finish(None);
    world.pass_secs(10);
    assert!(
        world
            .notes
            .iter()
            .any(|note| matches!(note, Note::Undelivered { .. }))
    );
    world.pass_secs(600);
    assert_eq!(world.gitlab.calls(), ["success"]);
    world.assert_dropped();
}

/// STATE-09, FLOW-22
#[test]
fn the_record_stays_until_the_hub_settled_the_job() {
    let mut world = World::running();
    for _ in 0..6 {
        world.hub.fail(HubFailure::transport("cut"));
    }
    world.finish(None);
    for _ in 0..20 {
        world.hub.fail(HubFailure::transport("cut"));
    }
    world.pass_secs(100);
    assert!(!world.removed);
    world.hub.faults.clear();
    world.pass_secs(60);
    world.assert_right_end(Status::Success);
}

/// STATE-09
#[test]
fn a_job_the_hub_calls_unfinished_is_followed_again_before_it_is_settled() {
    let mut world = World::running();
    world.finish(None);
    world.hub.faults.clear();
    world.pass_secs(0);
    let conflict = HubFailure::coded(ErrorCode::Conflict, 409, "not finished");
    world.hub.fail(conflict);
    world.pass_secs(200);
    world.assert_right_end(Status::Success);
}

/// FLOW-22
#[test]
fn a_slot_is_free_once_gitlab_has_the_final_state() {
    let mut world = World::running();
    world.gitlab.delays = 1;
    world.finish(None);
    assert_eq!(world.over, 0);
    world.pass_secs(3);
    assert_eq!(world.over, 1);
}
