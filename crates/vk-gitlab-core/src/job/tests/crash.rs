//! The daemon dies after each record, with no effect of it released, and starts from exactly what
//! it kept (FAIL-27).

use std::collections::BTreeSet;

use vk_hub_proto::client::{CancelMode, ErrorCode, JobState};
use vk_hub_proto::job::FailureClass;
use vk_step::Variant;

use super::fake_gitlab::{Status, status};
use super::fake_hub::Fault;
use super::world::{World, new_job};
use crate::HubFailure;
use crate::job::{Record, WhyGivenUp};

/// Plays a story, once without a crash and once for each of its records with a crash right after it.
pub(super) fn at_every_record(
    story: impl Fn(&mut World),
    end: impl Fn(&World),
) -> BTreeSet<&'static str> {
    let mut calm = World::new();
    story(&mut calm);
    end(&calm);
    let seen = calm.records.iter().map(Variant::variant).collect();
    for at in 1..=calm.records.len() {
        let mut world = World::new();
        world.crash_at = Some(at);
        story(&mut world);
        assert_eq!(world.crash_at, None, "crashed after record {at}");
        world.pass_secs(120);
        end(&world);
    }
    seen
}

fn runs_well(world: &mut World) {
    world.take(new_job());
    world.pass_secs(2);
    world.hub.accept();
    world.pass_secs(2);
    world.print("line one\n");
    world.pass_secs(15);
    world.print("line two\n");
    world.pass_secs(15);
    world.finish(None);
    world.pass_secs(10);
}

/// FAIL-27, STATE-04, STATE-05, STATE-20, STATE-26, GL-22
#[test]
fn a_job_that_succeeds() {
    let seen = at_every_record(runs_well, |world| {
        world.assert_right_end(Status::Success);
        assert_eq!(world.hub.starts, 1, "nothing runs twice");
    });
    let all = [
        "Committed",
        "Ended",
        "Patched",
        "Removed",
        "Reported",
        "Submitted",
        "Taken",
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
}

/// FAIL-27, ERR-22, STATE-09
#[test]
fn a_job_the_hub_refuses() {
    let seen = at_every_record(
        |world| {
            let refusal = HubFailure::coded(ErrorCode::ApprovalPending, 403, "project pending");
            // The hub gives the same answer each time (ERR-26).
            for _ in 0..4 {
                world.hub.fail(refusal.clone());
            }
            world.take(new_job());
            world.pass_secs(30);
        },
        |world| {
            world.assert_right_end(Status::Failed);
            let whole = world
                .records
                .iter()
                .any(|record| matches!(record, Record::Ended(ended) if ended.lines.len() == 2));
            let reason = if whole {
                "runner_configuration_error"
            } else {
                // Cut in the middle of a step, which no edge does: the reason is lost, not the end.
                "runner_system_failure"
            };
            assert_eq!(world.gitlab.reason.as_deref(), Some(reason));
            assert!(world.hub.submission.is_none());
        },
    );
    assert!(
        seen.contains("Refused") && seen.contains("Suffix"),
        "{seen:?}"
    );
}

/// FAIL-27, ERR-29, STATE-21
#[test]
fn a_job_the_hub_never_answers_for() {
    let seen = at_every_record(
        |world| {
            world.hub.faults.push_back(Fault::AnswerLost);
            for _ in 0..40 {
                world.hub.fail(HubFailure::transport("unreachable"));
            }
            world.take(new_job());
            world.pass_secs(2000);
        },
        |world| {
            assert_eq!(world.gitlab.status, Status::Failed);
            assert_eq!(
                world.gitlab.reason.as_deref(),
                Some("runner_system_failure")
            );
            let trace = String::from_utf8_lossy(&world.gitlab.trace).into_owned();
            assert!(trace.contains("not take the job"), "{trace}");
            assert!(world.is_cancelled(CancelMode::Immediate));
            world.assert_dropped();
        },
    );
    assert!(seen.contains("Abandoned"), "{seen:?}");
}

/// FAIL-27, GL-38, GL-39, STATE-09
#[test]
fn a_job_cancelled_while_it_runs() {
    let seen = at_every_record(
        |world| {
            world.take(new_job());
            world.hub.accept();
            world.pass_secs(5);
            world.print("working\n");
            world.gitlab.status = Status::Canceled;
            world.pass_secs(40);
        },
        |world| {
            assert_eq!(world.gitlab.status, Status::Canceled);
            assert!(world.is_cancelled(CancelMode::Immediate));
            world.assert_dropped();
        },
    );
    assert!(seen.contains("GivenUp"), "{seen:?}");
}

/// STATE-25
#[test]
fn a_job_cancelled_gracefully_while_the_daemon_was_down_is_finished_with_a_final_state() {
    let mut world = World::running();
    world.print("working\n");
    world.pass_secs(5);
    world.gitlab.status = Status::Canceling;
    world.gitlab.calls();
    world.crash();
    world.pass_secs(1);
    assert_eq!(
        world.gitlab.calls().first().map(String::as_str),
        Some("running"),
        "asked how it stands before anything else"
    );
    assert!(world.is_cancelled(CancelMode::Graceful));
    world.finish(Some(FailureClass::Canceled));
    world.pass_secs(5);
    world.assert_right_end(Status::Canceled);
}

/// STATE-25, GL-39
#[test]
fn a_job_cancelled_at_once_while_the_daemon_was_down_is_stopped_and_nothing_is_written() {
    let mut world = World::running();
    world.print("working\n");
    world.gitlab.status = Status::Canceled;
    world.gitlab.calls();
    world.crash();
    world.pass_secs(60);
    assert_eq!(world.gitlab.calls(), ["running"]);
    assert!(world.is_cancelled(CancelMode::Immediate));
    world.assert_dropped();
}

/// GL-22, STATE-04
#[test]
fn a_restarted_daemon_resumes_where_gitlab_says_the_trace_ends() {
    let mut world = World::running();
    world.print("one\n");
    world.pass_secs(5);
    world.print("two\n");
    world.pass_secs(5);
    // The last record of an offset is older than what GitLab has.
    let kept = world.records.iter().filter_map(|record| match record {
        Record::Patched(point) => Some(point.offset),
        _ => None,
    });
    assert_eq!(kept.max(), Some(24));
    assert_eq!(world.gitlab.trace.len(), 24 + 8);
    world.gitlab.calls();
    world.crash();
    world.print("three\n");
    world.pass_secs(5);
    let calls = world.gitlab.calls();
    assert_eq!(calls, ["running", "patch 24+14", "patch 32+6"]);
    world.finish(None);
    world.pass_secs(5);
    world.assert_right_end(Status::Success);
}

/// GL-51, STATE-26
#[test]
fn a_final_state_whose_answer_was_lost_with_the_daemon_counts_as_delivered() {
    let mut world = World::running();
    world.finish(None);
    world.pass_secs(5);
    assert_eq!(world.gitlab.status, Status::Success);
    // Everything up to `Ended`, nothing after it.
    let ended = world
        .records
        .iter()
        .position(|record| matches!(record, Record::Ended(_)))
        .expect("ended");
    world.records.truncate(ended + 1);
    world.removed = false;
    world.gitlab.calls();
    world.crash();
    world.pass_secs(5);
    assert_eq!(world.gitlab.calls(), ["running"]);
    assert!(
        world
            .records
            .contains(&Record::Reported { delivered: true }),
        "{:?}",
        world.records
    );
    world.assert_dropped();
}

/// STATE-26
#[test]
fn a_final_state_not_delivered_is_told_again_after_a_restart() {
    let mut world = World::running();
    for _ in 0..3 {
        world.gitlab.fault(status(500));
    }
    world.finish(None);
    world.pass_secs(1);
    assert_eq!(world.gitlab.status, Status::Running);
    world.gitlab.faults.clear();
    world.crash();
    world.pass_secs(5);
    world.assert_right_end(Status::Success);
}

/// GL-39
#[test]
fn a_job_given_up_stays_given_up_after_a_restart() {
    let mut world = World::running();
    world.gitlab.fault(status(403));
    world.print("x\n");
    world.pass_secs(5);
    let given_up = Record::GivenUp {
        why: WhyGivenUp::Forbidden,
    };
    let at = world
        .records
        .iter()
        .position(|record| *record == given_up)
        .expect("given up");
    world.records.truncate(at + 1);
    world.hub.settled = false;
    world.removed = false;
    world.gitlab.calls();
    world.crash();
    world.pass_secs(60);
    assert_eq!(world.gitlab.calls(), [""; 0], "not a word");
    world.assert_dropped();
}

/// FAIL-19
#[test]
fn a_job_whose_node_is_lost_while_the_daemon_is_down() {
    let mut world = World::running();
    world.print("working\n");
    world.pass_secs(5);
    world.hub.state = Some(JobState::Running);
    world.crash();
    world.finish(Some(FailureClass::Lost));
    world.pass_secs(10);
    world.assert_right_end(Status::Failed);
    assert_eq!(
        world.gitlab.reason.as_deref(),
        Some("runner_system_failure")
    );
}

/// A core that is opened from a removed job says so, and does nothing else.
#[test]
fn a_job_that_was_removed_stays_removed() {
    let mut world = World::new();
    runs_well(&mut world);
    world.gitlab.calls();
    world.removed = false;
    world.crash();
    world.pass_secs(60);
    assert!(world.removed);
    assert_eq!(world.gitlab.calls(), [""; 0]);
}

/// GL-22, GL-74
#[test]
fn closing_lines_that_gitlab_has_are_not_sent_again_after_a_restart() {
    let mut world = World::running();
    world.pass_secs(20);
    world.finish(Some(FailureClass::Lost));
    world.pump();
    assert!(world.gitlab.trace.ends_with(b"the job's node was lost\n"));
    let kept = world.records.iter().rev().find_map(|record| match record {
        Record::Patched(point) => Some(point.offset),
        _ => None,
    });
    assert_eq!(
        kept,
        Some(world.gitlab.trace.len() as u64),
        "the daemon knows that the trace is whole"
    );
    world.crash();
    world.pass_secs(10);
    world.assert_right_end(Status::Failed);
}
