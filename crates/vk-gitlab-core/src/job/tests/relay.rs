//! A hub that refuses what the relay signs.

use std::time::Duration;

use vk_hub_proto::client::{CancelMode, ErrorCode};

use super::fake_gitlab::{Status, status};
use super::world::{World, new_job};
use crate::HubFailure;
use crate::job::{Input, Phase, Record};

const HOUR: u64 = 3600;

/// A job that runs, whose hub refuses whatever comes.
fn refusing() -> World {
    let mut world = World::running();
    world.print("one\n");
    world.pass_secs(10);
    world.hub.refuses = Some(HubFailure::coded(ErrorCode::Unauthorized, 401, "no"));
    world
}

fn removed(world: &mut World) {
    let why = "an operator removed this relay".to_owned();
    world.give(Input::RelayRemoved { why });
    world.pump();
}

/// AUTH-05, AUTH-06, SESS-15
#[test]
fn a_401_alone_ends_no_job_however_long_it_lasts() {
    let mut world = refusing();
    world.pass_secs(HOUR / 2);
    assert_eq!(world.gitlab.status, Status::Running);
    let record = world.core.record().unwrap();
    assert_eq!((record.phase(), &record.ended), (Phase::Committed, &None));
    world.hub.refuses = None;
    world.print("two\n");
    world.pass_secs(80);
    assert_eq!(world.gitlab.trace, world.whole_trace());
    world.finish(None);
    world.pass_secs(120);
    world.assert_right_end(Status::Success);
}

/// SESS-15
#[test]
fn a_relay_that_is_said_to_be_removed_and_still_answered_keeps_its_jobs() {
    let mut world = World::running();
    removed(&mut world);
    world.print("one\n");
    world.pass_secs(90);
    assert_eq!(world.gitlab.status, Status::Running);
    world.finish(None);
    world.pass_secs(60);
    world.assert_right_end(Status::Success);
}

/// AUTH-05, STATE-09
#[test]
fn a_job_of_a_relay_that_was_removed_is_failed_as_lost_with_what_its_trace_has() {
    let mut world = refusing();
    removed(&mut world);
    world.print("never read\n");
    world.pass_secs(120);
    assert_eq!(world.gitlab.status, Status::Failed);
    let reason = world.gitlab.reason.as_deref();
    assert_eq!(reason, Some("runner_system_failure"));
    let trace = String::from_utf8_lossy(&world.gitlab.trace).into_owned();
    assert_eq!(
        trace,
        "Job triggered by policy\none\nERROR: Job failed (system failure): the fleet hub \
         https://hub.example.com does not know this runner's daemon any more: an operator removed \
         this relay\n"
    );
    let output = world.gitlab.output.expect("a checksum");
    assert_eq!(output.crc, super::world::crc(&world.gitlab.trace));
    assert_eq!(world.over, 1, "its slot is free");
    assert!(!world.removed, "the hub may still be told to stop it");
    assert!(world.is_cancelled(CancelMode::Immediate));
}

/// AUTH-05, STATE-09
#[test]
fn its_record_is_kept_until_the_hub_took_the_cancel_or_the_jobs_token_ended() {
    for comes_back in [true, false] {
        let mut world = refusing();
        removed(&mut world);
        world.pass_secs(HOUR / 2);
        assert!(!world.removed);
        if comes_back {
            world.hub.refuses = None;
            world.pass_secs(200);
            assert!(world.hub.settled);
        } else {
            let tries = world.hub.cancels.len();
            assert!((10..40).contains(&tries), "{tries} in half an hour");
            world.pass(Duration::from_secs(HOUR));
        }
        assert!(world.removed, "comes back: {comes_back}");
        assert_eq!(world.records.last(), Some(&Record::Removed));
    }
}

/// AUTH-05, STATE-04
#[test]
fn a_restart_between_the_refusal_and_the_end_changes_nothing() {
    let mut world = refusing();
    world.crash();
    world.pump();
    removed(&mut world);
    world.pass_secs(120);
    assert_eq!(world.gitlab.status, Status::Failed);
    let trace = String::from_utf8_lossy(&world.gitlab.trace).into_owned();
    assert!(
        trace.contains("one\nERROR: Job failed (system failure)"),
        "{trace}"
    );
}

/// GL-74, AUTH-05
#[test]
fn the_closing_lines_of_a_job_that_was_given_up_stand_once_although_its_relay_was_removed() {
    let mut world = World::new();
    world.hub.refuses = Some(HubFailure::transport("no route"));
    world.gitlab.delays = 8;
    world.take(new_job());
    world.pass_secs(330);
    let trace = world.gitlab.trace.clone();
    assert!(trace.ends_with(b"\n") && trace == world.whole_trace());
    assert_eq!(world.gitlab.status, Status::Running, "accepted, not taken");
    world.hub.refuses = Some(HubFailure::coded(ErrorCode::Unauthorized, 401, "no"));
    removed(&mut world);
    world.pass_secs(HOUR);
    assert_eq!(world.gitlab.status, Status::Failed);
    let text = |trace: &[u8]| String::from_utf8_lossy(trace).into_owned();
    assert_eq!(text(&world.gitlab.trace), text(&trace));
    let output = world.gitlab.output.expect("a checksum");
    assert_eq!(output.crc, super::world::crc(&trace), "GL-72");
}

/// GL-74, AUTH-05
#[test]
fn a_read_that_is_answered_after_the_closing_lines_went_out_moves_nothing() {
    let mut world = World::running();
    world.print("one\n");
    world.pass_secs(30);
    world.gitlab.delays = 8;
    world
        .hub
        .fail(HubFailure::coded(ErrorCode::Unauthorized, 401, "no"));
    world.pump();
    removed(&mut world);
    world.pass_secs(5);
    let trace = world.gitlab.trace.clone();
    assert!(String::from_utf8_lossy(&trace).contains("one\nERROR: Job failed"));
    // The read that is open brings the rest, and that it is all.
    world.hub.output.extend_from_slice(b"two\n");
    world.finish(None);
    world.pass_secs(HOUR);
    assert_eq!(world.gitlab.status, Status::Failed);
    assert_eq!(world.gitlab.trace, trace);
}

/// AUTH-05, SESS-15
#[test]
fn any_answer_after_a_401_says_that_the_relay_is_known() {
    let mut world = World::running();
    world.pass_secs(30);
    world
        .hub
        .fail(HubFailure::coded(ErrorCode::Unauthorized, 401, "no"));
    world.pump();
    // The read that is open is answered; the view is asked for again much later.
    world.print("one\n");
    removed(&mut world);
    world.pass_secs(120);
    assert_eq!(world.gitlab.status, Status::Running);
    world.finish(None);
    world.pass_secs(60);
    world.assert_right_end(Status::Success);
}

/// AUTH-05, STATE-22
#[test]
fn a_job_whose_file_cannot_be_written_hears_that_its_relay_was_removed() {
    let mut world = World::running();
    world.pass_secs(30);
    world.store_broken = true;
    world.print("one\n");
    world.pass_secs(2);
    let kept = world.records.len();
    world.hub.refuses = Some(HubFailure::coded(ErrorCode::Unauthorized, 401, "no"));
    removed(&mut world);
    world.pass_secs(20);
    assert_eq!(world.records.len(), kept, "nothing could be kept");
    world.store_broken = false;
    world.pass_secs(300);
    assert_eq!(world.gitlab.status, Status::Failed);
    assert_eq!(world.over, 1, "its slot is free");
}

/// AUTH-05, GL-50
#[test]
fn output_that_gitlab_lost_and_nobody_can_bring_holds_no_job_of_a_removed_relay() {
    for closing_lines_are_there in [true, false] {
        let mut world = refusing();
        if closing_lines_are_there {
            world.gitlab.delays = 1;
            removed(&mut world);
            world.gitlab.trace.clear();
            world.gitlab.fault(status(412));
        } else {
            world.gitlab.trace.clear();
            removed(&mut world);
        }
        world.pass_secs(HOUR / 2);
        let trace = String::from_utf8_lossy(&world.gitlab.trace).into_owned();
        assert_eq!(world.gitlab.status, Status::Failed, "{trace}");
        let closing = "Job triggered by policy\nERROR: Job failed (system failure): the fleet hub";
        assert!(trace.starts_with(closing), "{trace}");
        assert_eq!(trace.matches("ERROR").count(), 1, "{trace}");
        assert_eq!(world.gitlab.output, None, "the checksum is not known");
        assert_eq!(world.over, 1, "its slot is free");
    }
}
