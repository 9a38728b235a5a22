//! More stories, each cut after each of its records (FAIL-27).

use vk_hub_proto::client::CancelMode;
use vk_hub_proto::job::FailureClass;

use super::crash::at_every_record;
use super::fake_gitlab::{Status, status};
use super::world::{World, new_job};
use crate::Work;
use crate::job::{Note, Record};

fn runs(world: &mut World) {
    world.take(new_job());
    world.hub.accept();
    world.pass_secs(5);
    world.print("working\n");
    world.pass_secs(15);
}

fn failed(world: &World) {
    world.assert_right_end(Status::Failed);
    let reason = world.gitlab.reason.as_deref();
    assert_eq!(reason, Some("runner_system_failure"));
}

/// FAIL-27, GL-15
#[test]
fn a_job_that_no_node_took() {
    let seen = at_every_record(
        |world| {
            world.take(new_job());
            world.pass_secs(300);
            world.finish(Some(FailureClass::NoCapacity));
            world.pass_secs(10);
        },
        |world| {
            failed(world);
            let calls = &world.gitlab.calls;
            assert!(!calls.contains(&"running".to_owned()), "{calls:?}");
        },
    );
    assert!(seen.contains("Suffix") && !seen.contains("Committed"));
}

/// FAIL-27, FAIL-19
#[test]
fn a_job_whose_node_was_lost_behind_its_output() {
    let seen = at_every_record(
        |world| {
            runs(world);
            world.finish(Some(FailureClass::Lost));
            world.pass_secs(10);
        },
        failed,
    );
    assert!(seen.contains("Suffix") && seen.contains("Committed"));
}

/// FAIL-27, GL-36, GL-71
#[test]
fn a_job_that_is_stopped_gracefully() {
    at_every_record(
        |world| {
            runs(world);
            world.gitlab.status = Status::Canceling;
            world.pass_secs(60);
            assert!(world.is_cancelled(CancelMode::Graceful));
            world.print("after_script\n");
            world.finish(Some(FailureClass::Canceled));
            world.pass_secs(20);
        },
        |world| world.assert_right_end(Status::Canceled),
    );
}

/// FAIL-27, GL-46
#[test]
fn a_job_that_was_cancelled_before_a_node_took_it() {
    let seen = at_every_record(
        |world| {
            world.take(new_job());
            world.gitlab.status = Status::Canceled;
            world.pass_secs(5);
            world.hub.accept();
            world.pass_secs(60);
        },
        |world| {
            assert!(world.is_cancelled(CancelMode::Immediate));
            assert!(world.gitlab.trace.is_empty(), "nothing is written");
            world.assert_dropped();
        },
    );
    assert!(seen.contains("GivenUp") && !seen.contains("Committed"));
}

/// FAIL-27, GL-59
#[test]
fn a_job_whose_end_gitlab_does_not_take() {
    let seen = at_every_record(
        |world| {
            runs(world);
            for _ in 0..4 {
                world.gitlab.fault(status(403));
            }
            world.finish(None);
            world.pass_secs(20);
        },
        |world| {
            let told = |record: &Record| *record == Record::Reported { delivered: true };
            assert!(!world.records.iter().any(told));
            world.assert_dropped();
        },
    );
    assert!(seen.contains("Reported") || seen.contains("GivenUp"));
}

/// FAIL-27, FAIL-19
#[test]
fn a_job_that_the_hub_forgot() {
    at_every_record(
        |world| {
            runs(world);
            world.hub.forgotten = true;
            world.pass_secs(120);
        },
        |world| {
            assert_eq!(world.gitlab.status, Status::Failed);
            let reason = world.gitlab.reason.as_deref();
            assert_eq!(reason, Some("runner_system_failure"));
            assert!(world.notes.contains(&Note::LostByHub));
            world.assert_dropped();
        },
    );
}

/// FAIL-27, ERR-32
#[test]
fn a_job_that_must_be_committed_before_it_can_be_failed() {
    for early in [false, true] {
        at_every_record(
            |world| {
                world.gitlab.status = Status::Pending;
                world.gitlab.takes_early = early;
                world.take(new_job());
                world.finish(Some(FailureClass::NoCapacity));
                world.pass_secs(30);
            },
            failed,
        );
    }
}

/// FAIL-27
#[test]
fn a_job_that_cannot_be_translated() {
    let seen = at_every_record(
        |world| {
            let mut job = new_job();
            job.work = Work::Refuse {
                class: FailureClass::Configuration,
                lines: vec!["ERROR: no".to_owned()],
            };
            world.take(job);
            world.pass_secs(20);
        },
        |world| {
            world.assert_right_end(Status::Failed);
            assert!(world.hub.submission.is_none());
        },
    );
    assert!(seen.contains("Refused") && !seen.contains("Submitted"));
}
