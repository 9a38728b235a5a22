//! Cancels, as GitLab tells them.

use vk_hub_proto::client::CancelMode;
use vk_hub_proto::job::FailureClass;

use super::fake_gitlab::{Status, status};
use super::world::{World, new_job};
use crate::HubFailure;
use crate::job::{GitLabAnswer, JobStatus, Note, Record, WhyGivenUp};

fn with_status(code: u16, job_status: JobStatus) -> GitLabAnswer {
    GitLabAnswer {
        job_status: Some(job_status),
        ..status(code)
    }
}

/// GL-35, GL-36, GL-71
#[test]
fn canceling_asks_for_a_graceful_cancel_once_and_the_trace_goes_on() {
    let mut world = World::running();
    world.gitlab.status = Status::Canceling;
    for _ in 0..10 {
        world.print("still here\n");
        world.pass_secs(5);
    }
    assert_eq!(world.hub.cancels, [CancelMode::Graceful]);
    assert_eq!(world.hub.starts, 1);
    world.print("after_script\n");
    world.finish(Some(FailureClass::Canceled));
    world.pass_secs(10);
    world.assert_right_end(Status::Canceled);
    assert_eq!(
        world
            .notes
            .iter()
            .filter(|note| **note == Note::Canceling)
            .count(),
        1
    );
}

/// GL-35
#[test]
fn one_answer_that_says_canceling_is_enough_whichever_call_it_answers() {
    let hears = |mut world: World, code, call: &str| {
        world.gitlab.calls();
        world.gitlab.fault(with_status(code, JobStatus::Canceling));
        world.hub.accept();
        world.pass_secs(1);
        if call == "patch 24+1" {
            world.print("x");
        }
        world.pass_secs(40);
        assert_eq!(world.gitlab.calls()[0], call);
        assert_eq!(world.hub.cancels, [CancelMode::Graceful], "{call}");
    };
    hears(World::with(new_job()), 200, "running");
    hears(World::running(), 202, "patch 24+1");
    let mut silent = World::running();
    silent.pass_secs(10);
    hears(silent, 200, "keep-alive");
}

/// GL-36
#[test]
fn a_graceful_cancel_the_hub_did_not_answer_is_asked_again() {
    let mut world = World::running();
    world.gitlab.status = Status::Canceling;
    world.print("x");
    world.hub.fail(HubFailure::transport("cut"));
    world.pass_secs(5);
    world.hub.fail(HubFailure::transport("cut"));
    world.pass_secs(20);
    assert!(world.is_cancelled(CancelMode::Graceful));
    assert_eq!(world.hub.cancel, Some(CancelMode::Graceful));
}

/// GL-37, GL-39
#[test]
fn canceled_or_failed_with_any_status_stops_at_once_and_nothing_more_is_written() {
    for (job_status, why) in [
        (JobStatus::Canceled, WhyGivenUp::Canceled),
        (JobStatus::Failed, WhyGivenUp::Failed),
    ] {
        for code in [200, 202, 403, 500] {
            let mut world = World::running();
            world.gitlab.fault(with_status(code, job_status));
            world.print("x");
            world.pass_secs(5);
            assert_eq!(world.hub.cancels, [CancelMode::Immediate], "{code}");
            assert!(world.notes.contains(&Note::GivenUp(why)));
            world.pass_secs(600);
            assert_eq!(world.gitlab.calls(), ["patch 24+1"]);
            world.assert_dropped();
        }
    }
}

/// GL-38, GL-39
#[test]
fn a_403_to_a_keep_alive_stops_at_once() {
    let mut world = World::running();
    world.pass_secs(10);
    world.gitlab.fault(status(403));
    world.pass_secs(120);
    assert_eq!(world.gitlab.calls(), ["keep-alive"]);
    assert_eq!(world.hub.cancels, [CancelMode::Immediate]);
    world.assert_dropped();
}

/// GL-36, GL-37
#[test]
fn an_immediate_cancel_follows_a_graceful_one() {
    let mut world = World::running();
    world.gitlab.status = Status::Canceling;
    world.print("x");
    world.pass_secs(5);
    world.gitlab.status = Status::Canceled;
    world.print("y");
    world.pass_secs(5);
    assert_eq!(
        world.hub.cancels,
        [CancelMode::Graceful, CancelMode::Immediate]
    );
    world.assert_dropped();
}

/// GL-46, OPEN-05
#[test]
fn a_403_to_the_commit_means_cancelled_or_taken() {
    let mut world = World::with(new_job());
    world.gitlab.status = Status::Canceled;
    world.hub.accept();
    world.pass_secs(60);
    assert_eq!(world.gitlab.calls(), ["running"]);
    assert_eq!(world.hub.cancels, [CancelMode::Immediate]);
    assert_eq!(world.gitlab.trace, b"");
    world.assert_dropped();
}

/// GL-46
#[test]
fn a_commit_that_fails_is_made_again_and_nothing_is_written_before_it() {
    let mut world = World::with(new_job());
    for code in [500, 502, 429] {
        world.gitlab.fault(status(code));
    }
    world.gitlab.fault(GitLabAnswer::default());
    world.hub.accept();
    world.print("x");
    world.pass_secs(60);
    let calls = world.gitlab.calls();
    assert_eq!(calls[..5], ["running"; 5]);
    assert!(calls[5].starts_with("patch 0+"));
    assert_eq!(world.hub.cancels, []);
}

/// GL-36, GL-46
#[test]
fn canceling_on_the_commit_still_ends_with_a_final_state() {
    let mut world = World::with(new_job());
    world.gitlab.status = Status::Canceling;
    world.hub.accept();
    world.pass_secs(2);
    assert_eq!(world.hub.cancels, [CancelMode::Graceful]);
    world.finish(Some(FailureClass::Canceled));
    world.pass_secs(10);
    world.assert_right_end(Status::Canceled);
    assert_eq!(world.gitlab.reason.as_deref(), Some("unknown_failure"));
}

/// GL-71
#[test]
fn canceling_in_the_final_phase_changes_nothing() {
    let mut world = World::running();
    world.gitlab.delays = 3;
    world.finish(None);
    world.pass_secs(2);
    world.gitlab.status = Status::Canceling;
    world.pass_secs(60);
    world.assert_right_end(Status::Canceled);
    assert_eq!(world.hub.cancels, []);
}

/// GL-59
#[test]
fn a_token_that_ended_under_the_job_stops_it_undelivered() {
    for call in ["patch 24+1", "keep-alive"] {
        for (said, why) in [
            (None, WhyGivenUp::Forbidden),
            (Some(JobStatus::Failed), WhyGivenUp::Failed),
        ] {
            let row = format!("{call} {said:?}");
            let mut world = World::running();
            world.pass_secs(10);
            world.hub.slow_cancel = true;
            world.gitlab.fault(GitLabAnswer {
                job_status: said,
                ..status(403)
            });
            if call != "keep-alive" {
                world.print("x");
            }
            world.pass_secs(60);
            assert!(world.notes.contains(&Note::GivenUp(why)), "{row}");
            assert_eq!(world.hub.cancels, [CancelMode::Immediate], "{row}");
            assert_eq!((world.hub.settles, world.over), (0, 1), "{row}");
            // The job ends as the hub has it; GitLab hears of nothing any more.
            world.print("y");
            world.finish(Some(FailureClass::Timeout));
            world.pass_secs(3600);
            assert_eq!(world.gitlab.calls(), [call], "{row}");
            assert_eq!(world.hub.settles, 1, "{row}");
            let told = |record: &Record| matches!(record, Record::Reported { .. });
            assert!(!world.records.iter().any(told), "{row}");
            world.assert_dropped();
        }
    }
}

/// GL-59
#[test]
fn a_final_state_after_the_tokens_end_is_undelivered_whatever_gitlab_holds_the_job_for() {
    for said in [None, Some(JobStatus::Running), Some(JobStatus::Failed)] {
        let mut world = World::running();
        world.gitlab.fault(GitLabAnswer {
            job_status: said,
            ..status(403)
        });
        world.finish(None);
        world.pass_secs(3600);
        let undelivered = |note: &Note| matches!(note, Note::Undelivered { .. });
        assert!(world.notes.iter().any(undelivered), "{said:?}");
        let told = &Record::Reported { delivered: false };
        assert!(world.records.contains(told), "{said:?}");
        assert_eq!(world.gitlab.calls(), ["success"], "{said:?}");
        assert_eq!((world.hub.settles, world.over), (1, 1), "{said:?}");
        world.assert_dropped();
    }
}

/// STATE-09, GL-38
#[test]
fn a_job_given_up_is_settled_once_it_is_finished_and_not_before() {
    let mut world = World::running();
    world.hub.slow_cancel = true;
    world.gitlab.fault(status(403));
    world.print("x");
    world.pass_secs(60);
    assert_eq!(world.hub.cancels, [CancelMode::Immediate]);
    assert_eq!(world.hub.settles, 0);
    assert!(!world.removed);
    assert_eq!(world.over, 1, "its slot is free all the same");
    world.finish(Some(FailureClass::Canceled));
    world.pass_secs(5);
    assert_eq!(world.hub.settles, 1);
    world.assert_dropped();
}
