//! Jobs that never run: refused, too large, not placed.

use vk_hub_proto::client::{CancelMode, ErrorCode};
use vk_hub_proto::job::FailureClass;

use super::fake_gitlab::{Fault, Status};
use super::world::{World, new_job, reservation};
use crate::job::{Note, Record};
use crate::{HubFailure, NewJob, WithoutReservation, Work};

fn refused(code: ErrorCode, status: u16, text: &str, job: NewJob) -> World {
    let mut world = World::new();
    world.hub.fail(HubFailure::coded(code, status, text));
    world.take(job);
    world.pass_secs(10);
    world
}

fn trace(world: &World) -> String {
    String::from_utf8_lossy(&world.gitlab.trace).into_owned()
}

/// ERR-21, ERR-22, ERR-23, ERR-24, ERR-25
#[test]
fn a_project_that_waits_for_approval_fails_its_job_uncommitted_with_what_to_do() {
    let mut world = refused(
        ErrorCode::ApprovalPending,
        403,
        "project acme/web waits for approval",
        new_job(),
    );
    assert_eq!(
        trace(&world),
        "Job triggered by policy\n\
         ERROR: project acme/web (ID 12) is waiting for approval on the fleet hub https://hub.example.com.\n\
         Retry this job once an operator has approved it (Connections > GitLab > Pending).\n"
    );
    assert_eq!(
        world.gitlab.reason.as_deref(),
        Some("runner_configuration_error")
    );
    assert_eq!(world.gitlab.exit_code, None);
    assert_eq!(world.released, [reservation()]);
    assert_eq!(
        world.gitlab.calls(),
        [
            "patch 0+24",
            "patch 24+180",
            "failed runner_configuration_error"
        ]
    );
    world.assert_right_end(Status::Failed);
    assert_eq!(world.hub.submissions, 1, "not tried again");
}

/// ERR-23
#[test]
fn an_older_gitlab_hears_script_failure_for_it() {
    let mut job = new_job();
    job.failure_reasons.clear();
    let world = refused(ErrorCode::ApprovalPending, 403, "project", job);
    assert_eq!(world.gitlab.reason.as_deref(), Some("script_failure"));
}

/// ERR-31
#[test]
fn servers_and_rejections_are_told_in_the_same_two_lines() {
    for (code, text, line) in [
        (
            ErrorCode::ApprovalPending,
            "server https://gitlab.example.com waits for approval",
            "ERROR: GitLab server https://gitlab.example.com is waiting for approval on the fleet hub https://hub.example.com.",
        ),
        (
            ErrorCode::ProjectRejected,
            "project acme/web was rejected",
            "ERROR: project acme/web (ID 12) was rejected on the fleet hub https://hub.example.com.",
        ),
        (
            ErrorCode::ProjectRejected,
            "server https://gitlab.example.com was rejected",
            "ERROR: GitLab server https://gitlab.example.com was rejected on the fleet hub https://hub.example.com.",
        ),
    ] {
        let world = refused(code, 403, text, new_job());
        let trace = trace(&world);
        let lines: Vec<&str> = trace.lines().skip(1).collect();
        assert_eq!(lines.first(), Some(&line));
        assert!(lines[1].starts_with("Retry this job once an operator has approved it"));
        assert_eq!(lines.len(), 2);
    }
}

/// ERR-30
#[test]
fn every_other_refusal_fails_the_job_with_the_hubs_text() {
    for (code, status, reason) in [
        (ErrorCode::Invalid, 400, "runner_system_failure"),
        (ErrorCode::Unauthorized, 401, "runner_system_failure"),
        (ErrorCode::Forbidden, 403, "runner_system_failure"),
        (ErrorCode::NotFound, 404, "runner_system_failure"),
        (ErrorCode::Conflict, 409, "runner_system_failure"),
        (ErrorCode::ReservationGone, 410, "runner_system_failure"),
        (ErrorCode::TooLarge, 413, "runner_configuration_error"),
    ] {
        let world = refused(code, status, "because\nof this", new_job());
        world.assert_right_end(Status::Failed);
        assert_eq!(world.gitlab.reason.as_deref(), Some(reason), "{code:?}");
        assert!(trace(&world).contains("because of this"), "{code:?}");
        assert_eq!(world.released, [reservation()]);
    }
}

/// SPEC-82
#[test]
fn a_spec_too_large_for_any_hub_is_not_sent() {
    let mut job = new_job();
    job.spec_bytes = 524_289;
    let mut world = World::new();
    world.take(job);
    world.pass_secs(10);
    world.assert_right_end(Status::Failed);
    assert_eq!(world.hub.submissions, 0);
    assert_eq!(
        world.gitlab.reason.as_deref(),
        Some("runner_configuration_error")
    );
    assert!(trace(&world).contains("524289 bytes"));
    assert_eq!(world.released, [reservation()]);

    let mut job = new_job();
    job.spec_bytes = 524_288;
    let world = World::with(job);
    assert_eq!(world.hub.submissions, 1, "the limit itself is no excess");
}

/// GL-74
#[test]
fn a_job_the_daemon_cannot_translate_is_failed_with_its_lines() {
    let mut job = new_job();
    job.timestamps = true;
    job.work = Work::Refuse {
        class: FailureClass::Configuration,
        lines: vec!["ERROR: Job failed: secrets are not supported".to_owned()],
    };
    let mut world = World::new();
    world.take(job);
    world.pass_secs(10);
    world.assert_right_end(Status::Failed);
    assert_eq!(
        trace(&world),
        "Job triggered by policy\n[stamp] ERROR: Job failed: secrets are not supported\n"
    );
    assert!(
        world
            .records
            .iter()
            .any(|record| matches!(record, Record::Suffix { .. }))
    );
}

/// GL-50, GL-74
#[test]
fn closing_lines_come_whole_behind_output_that_nobody_here_knows_of() {
    for (known, foreign) in [
        ("Job triggered by policy\n", "x\n"),
        ("", "much longer than our line ".repeat(99).as_str()),
    ] {
        let mut world = World::new();
        let mut job = new_job();
        job.preamble = known.to_owned();
        job.work = Work::Refuse {
            class: FailureClass::Configuration,
            lines: vec!["ERROR: no".to_owned()],
        };
        let before = format!("{known}{foreign}");
        world.gitlab.trace = before.clone().into_bytes();
        world.take(job);
        world.pass_secs(30);
        assert_eq!(world.gitlab.status, Status::Failed);
        assert_eq!(trace(&world), format!("{before}ERROR: no\n"));
        assert_eq!(
            world.gitlab.output, None,
            "what is not known has no checksum"
        );
        world.assert_dropped();
    }
}

/// GL-51, GL-74
#[test]
fn closing_lines_whose_answer_was_lost_are_not_sent_twice() {
    let mut world = World::new();
    let mut job = new_job();
    job.work = Work::Refuse {
        class: FailureClass::Configuration,
        lines: vec!["ERROR: no".to_owned()],
    };
    job.preamble = String::new();
    world.gitlab.faults.push_back(Fault::AnswerLost);
    world.take(job);
    world.pass_secs(60);
    world.assert_right_end(Status::Failed);
}

/// ADM-23, ADM-24
#[test]
fn a_job_waits_for_room_with_the_hub_alone_and_for_its_window_once() {
    for under in [
        Ok(reservation()),
        Err(WithoutReservation::Gone),
        Err(WithoutReservation::Lapsed),
    ] {
        let mut world = World::new();
        world.take_with(new_job(), under);
        assert_eq!(world.hub.submissions, 1, "{under:?}: at once");
        let submission = world.hub.submission.clone().expect("submitted");
        assert_eq!(submission.place_within_secs, 300, "{under:?}");
        assert_eq!(submission.reservation, under.ok(), "{under:?}");
        world.pass_secs(299);
        assert_eq!(world.gitlab.calls(), [""; 0], "{under:?}");
        assert_eq!(world.hub.cancels, [], "{under:?}");
        world.finish(Some(FailureClass::NoCapacity));
        world.pass_secs(1000);
        world.assert_right_end(Status::Failed);
        assert_eq!(
            world.hub.submissions, 1,
            "{under:?}: not for another window"
        );
    }
}

/// GL-15, ADM-23, OPEN-01
#[test]
fn a_job_no_node_took_is_failed_without_a_commit() {
    let mut world = World::with(new_job());
    world.pass_secs(300);
    world.finish(Some(FailureClass::NoCapacity));
    world.pass_secs(10);
    world.assert_right_end(Status::Failed);
    assert_eq!(
        world.gitlab.reason.as_deref(),
        Some("runner_system_failure")
    );
    assert!(trace(&world).contains("no node of the fleet took the job within 300 s"));
    assert!(!world.gitlab.calls().contains(&"running".to_owned()));
}

/// ERR-32, OPEN-01, OPEN-04
#[test]
fn in_the_acknowledgement_window_a_job_is_committed_so_that_it_can_be_failed() {
    for (preamble, early) in [
        ("", false),
        ("policy\n", false),
        ("", true),
        ("policy\n", true),
    ] {
        let mut job = new_job();
        job.preamble = preamble.to_owned();
        let mut world = World::new();
        world.gitlab.status = Status::Pending;
        world.gitlab.takes_early = early;
        world.take(job);
        world.finish(Some(FailureClass::NoCapacity));
        world.pass_secs(20);
        world.assert_right_end(Status::Failed);
        assert!(world.gitlab.calls().contains(&"running".to_owned()));
    }
}

/// ERR-32
#[test]
fn a_400_to_an_uncommitted_final_state_is_followed_by_running_and_the_state_again() {
    let mut job = new_job();
    job.preamble = String::new();
    job.work = Work::Refuse {
        class: FailureClass::System,
        lines: Vec::new(),
    };
    let mut world = World::new();
    world.gitlab.status = Status::Pending;
    world.take(job);
    world.pass_secs(20);
    assert_eq!(
        world.gitlab.calls(),
        [
            "failed runner_system_failure",
            "running",
            "failed runner_system_failure"
        ]
    );
    world.assert_right_end(Status::Failed);
}

/// GL-46
#[test]
fn a_job_that_ran_before_anyone_looked_is_committed_before_its_end_is_told() {
    let mut world = World::new();
    world.hub.fail(HubFailure::transport("cut"));
    world.take(new_job());
    world.pass_secs(3);
    world.hub.state = Some(vk_hub_proto::client::JobState::Queued);
    world.hub.accept();
    world.hub.output = b"done\n".to_vec();
    world.finish(None);
    world.pass_secs(10);
    world.assert_right_end(Status::Success);
    assert_eq!(
        world.gitlab.calls(),
        ["running", "patch 0+24", "patch 24+5", "success"]
    );
}

/// ERR-08: a relay told `rebound` stays so until an operator decides, which may take days.
#[test]
fn what_is_left_of_a_job_asks_a_hub_that_refuses_it_ever_more_rarely() {
    let hub_calls = |world: &World| {
        let of_hub = |note: &&Note| matches!(note, Note::Hub { .. });
        world.notes.iter().filter(of_hub).count()
    };
    let mut world = World::running();
    world.hub.refuses = Some(HubFailure::coded(ErrorCode::Forbidden, 403, "rebound"));
    // What GitLab waits for is asked for every minute.
    let before = hub_calls(&world);
    world.pass_secs(7200);
    let awaited = hub_calls(&world) - before;
    assert!((100..300).contains(&awaited), "{awaited}");
    world.gitlab.status = Status::Canceled;
    world.pass_secs(120);
    assert!(world.core.record().unwrap().is_over());
    let before = hub_calls(&world);
    world.pass_secs(24 * 3600);
    // A view and a cancel, six times until they wait an hour, and then hourly.
    let leftover = hub_calls(&world) - before;
    assert!((2 * 20..=2 * 30).contains(&leftover), "{leftover}");
    let said = world.notes.last().unwrap().to_string();
    assert!(said.contains("`vk-hub status` on the hub names"), "{said}");
    world.hub.refuses = None;
    world.pass_secs(3700);
    assert_eq!(world.hub.cancels.last(), Some(&CancelMode::Immediate));
    world.assert_dropped();
}
