//! The closing lines stand once, and the job ends, where nobody can say any more what the output was.

use vk_hub_proto::client::{ErrorCode, JobState};

use super::fake_gitlab::{Fault, Status, status};
use super::world::{World, crc, new_job};
use crate::HubFailure;
use crate::job::{Input, JobStatus, Note, Record};

const HOUR: u64 = 3600;

fn unauthorized() -> HubFailure {
    HubFailure::coded(ErrorCode::Unauthorized, 401, "no")
}

fn not_found() -> HubFailure {
    HubFailure::coded(ErrorCode::NotFound, 404, "no such job")
}

fn removed(world: &mut World) {
    let why = "an operator removed this relay".to_owned();
    world.give(Input::RelayRemoved { why });
    world.pump();
}

fn text(world: &World) -> String {
    String::from_utf8_lossy(&world.gitlab.trace).into_owned()
}

/// A job that runs, with or without a preamble, and has said this.
fn said(preamble: &str, output: &[&str]) -> World {
    let mut job = new_job();
    job.preamble = preamble.to_owned();
    let mut world = World::with(job);
    world.hub.accept();
    world.pass_secs(1);
    for output in output {
        world.print(output);
        world.pass_secs(4);
    }
    world
}

/// One end, and its lines once, behind everything that GitLab has of the job.
fn assert_closed_once(world: &World, before: &str) {
    let trace = text(world);
    assert_eq!(world.gitlab.status, Status::Failed, "{trace}");
    assert_eq!(trace.matches("ERROR").count(), 1, "{trace}");
    assert!(trace.starts_with(&format!("{before}ERROR")), "{trace}");
    assert!(trace.ends_with("removed this relay\n"), "{trace}");
    if let Some(output) = world.gitlab.output {
        assert_eq!(output.crc, crc(&world.gitlab.trace), "GL-72");
    }
    assert_eq!(world.over, 1, "its slot is free");
}

/// A job whose relay is removed, and whose daemon dies once so many records are kept; each life
/// hears of the removal anew. How many records there were.
fn removed_and_killed_at(at: Option<usize>) -> usize {
    let mut world = World::new();
    world.gitlab.delays = 6;
    world.crash_at = at;
    world.take(new_job());
    world.hub.accept();
    world.pass_secs(2);
    for line in ["one\n", "two\n", "three\n", "four\n", "five\n"] {
        world.print(line);
        world.pass_secs(4);
    }
    world.hub.refuses = Some(unauthorized());
    for _ in 0..HOUR / 30 {
        removed(&mut world);
        world.pass_secs(30);
    }
    let whole = "Job triggered by policy\none\ntwo\nthree\nfour\nfive\n";
    let trace = text(&world);
    if at.is_none() || trace.contains("five") {
        assert_closed_once(&world, whole);
    } else {
        assert_eq!(
            trace.matches("ERROR").count(),
            1,
            "killed at {at:?}: {trace}"
        );
        assert_eq!(world.gitlab.status, Status::Failed, "{trace}");
    }
    world.records.len()
}

/// GL-74, AUTH-05, FAIL-27
#[test]
fn the_closing_lines_stand_once_wherever_the_daemon_of_a_removed_relay_dies() {
    let records = removed_and_killed_at(None);
    for at in 1..=records {
        removed_and_killed_at(Some(at));
    }
}

/// GL-74, AUTH-05, STATE-23
#[test]
fn a_restart_within_the_closing_lines_of_a_removed_relays_job_writes_them_no_second_time() {
    let lines = ["one\n", "two\n", "three\n"];
    for (lived_on, said_lines) in [(0, 3), (15, 3), (0, 1), (0, 2)] {
        let mut world = said("Job triggered by policy\n", &lines[..said_lines]);
        world.gitlab.delays = 1000;
        world.hub.refuses = Some(unauthorized());
        removed(&mut world);
        world.pass_secs(lived_on);
        let trace = world.gitlab.trace.clone();
        assert!(trace.ends_with(b"removed this relay\n"));
        world.crash();
        world.pump();
        world.gitlab.delays = 0;
        removed(&mut world);
        world.pass_secs(HOUR / 2);
        let whole = format!("Job triggered by policy\n{}", lines[..said_lines].concat());
        assert_closed_once(&world, &whole);
        assert_eq!(world.gitlab.trace, trace);
    }
}

/// GL-50, STATE-09
#[test]
fn output_that_gitlab_lost_and_the_hub_forgot_holds_no_job() {
    for how in ["forgotten", "removed"] {
        let mut world = said("Job triggered by policy\n", &["one\n", "two\n"]);
        world.gitlab.trace.truncate(26);
        match how {
            "forgotten" => world.hub.forgotten = true,
            _ => {
                world.hub.refuses = Some(unauthorized());
                removed(&mut world);
                world.pass_secs(1);
                world.hub.refuses = Some(not_found());
            }
        }
        world.pass_secs(HOUR / 2);
        let trace = text(&world);
        assert_eq!(world.gitlab.status, Status::Failed, "{how}: {trace}");
        assert_eq!(trace.matches("ERROR").count(), 1, "{how}: {trace}");
        assert!(
            trace.starts_with("Job triggered by policy\nonERROR"),
            "{trace}"
        );
        let patches = world
            .gitlab
            .calls
            .iter()
            .filter(|call| call.starts_with("patch"));
        assert!(patches.count() < 20, "{:?}", world.gitlab.calls);
    }
}

/// GL-50, API-40
#[test]
fn a_hub_that_came_back_with_less_output_is_not_asked_for_ever() {
    let mut world = said("Job triggered by policy\n", &["one\n", "two\n"]);
    world.gitlab.delays = 1000;
    world.hub.refuses = Some(unauthorized());
    removed(&mut world);
    world.pass_secs(10);
    assert!(text(&world).contains("two\nERROR"));
    // The hub is back, as it was when the job had said nothing; and GitLab lost its trace.
    world.hub.refuses = None;
    world.hub.output.clear();
    world.hub.state = Some(JobState::Running);
    world.gitlab.trace.truncate(26);
    world.gitlab.fault(status(412));
    world.gitlab.delays = 0;
    world.hub.reads.clear();
    world.pass_secs(HOUR / 2);
    let trace = text(&world);
    assert_eq!(world.gitlab.status, Status::Failed, "{trace}");
    assert!(
        trace.starts_with("Job triggered by policy\nonERROR"),
        "{trace}"
    );
    assert_eq!(trace.matches("ERROR").count(), 1, "{trace}");
    assert!(world.hub.reads.len() < 5, "{:?}", world.hub.reads);
    assert_eq!(world.gitlab.output, None, "the checksum is not known");
}

/// GL-50, GL-74
#[test]
fn closing_lines_come_whole_where_the_hub_came_back_with_less_output_than_was_read() {
    let mut world = said("Job triggered by policy\n", &["one\n", "two\n", "three\n"]);
    world.hub.output.truncate(4);
    world.finish(Some(vk_hub_proto::job::FailureClass::Lost));
    world.pass_secs(60);
    let trace = text(&world);
    let closing = "ERROR: Job failed (system failure): the job's node was lost\n";
    let whole = format!("Job triggered by policy\none\ntwo\nthree\n{closing}");
    assert_eq!(trace, whole);
    let output = world.gitlab.output.expect("all of it is known");
    assert_eq!(output.crc, crc(&world.gitlab.trace), "GL-72");
}

/// GL-33, GL-70, GL-74, AUTH-05
#[test]
fn a_412_says_nothing_of_where_gitlab_is_and_moves_no_closing_lines() {
    for (preamble, lost) in [
        ("", false),
        ("", true),
        ("Job triggered by policy\n", false),
    ] {
        let mut world = said(preamble, &["one\n", "two\n"]);
        world.gitlab.delays = 1;
        world.hub.refuses = Some(unauthorized());
        removed(&mut world);
        world.pass_secs(1);
        let trace = world.gitlab.trace.clone();
        assert!(trace.ends_with(b"removed this relay\n"));
        if lost {
            world.gitlab.trace.clear();
        }
        world.gitlab.fault(status(412));
        world.pass_secs(HOUR / 2);
        let before = if lost { "" } else { "one\ntwo\n" };
        assert_closed_once(&world, &format!("{preamble}{before}"));
        if !lost {
            assert_eq!(world.gitlab.trace, trace, "{preamble:?}");
            assert!(world.gitlab.output.is_some(), "the checksum is known");
        }
    }
}

/// GL-34, GL-70
#[test]
fn a_final_state_that_is_never_taken_is_given_up_once_the_token_ended() {
    for code in [202, 412] {
        let mut world = World::running();
        world.gitlab.fault(status(code));
        world.finish(None);
        let ends = new_job().token_ends.expect("known") - super::world::WALL;
        let mut answers = 0;
        while !world.removed {
            let answer = crate::job::GitLabAnswer {
                job_status: Some(JobStatus::Running),
                ..status(code)
            };
            world.gitlab.faults.clear();
            world.gitlab.fault(answer);
            world.pass_secs(1);
            answers += 1;
            assert!(answers < 24 * HOUR, "{code}: told for ever");
        }
        assert!(answers >= ends, "{code}: given up after {answers} s");
        let told = |note: &Note| matches!(note, Note::Undelivered { .. });
        assert!(world.notes.iter().any(told), "{code}");
        assert!(
            world
                .records
                .contains(&Record::Reported { delivered: false })
        );
    }
}

/// GL-72, GL-74, AUTH-05
#[test]
fn output_that_only_gitlab_knows_of_stays_before_the_closing_lines_over_two_restarts() {
    let lines = ["one\n", "two\n", "three\n", "four\n"];
    let mut world = said("Job triggered by policy\n", &lines);
    world.print("five\n");
    world.pass_secs(4);
    let before = text(&world);
    assert!(before.ends_with("five\n"), "{before}");
    // What it had sent last, no record says, and the hub neither.
    world.hub.refuses = Some(unauthorized());
    world.crash();
    world.pump();
    for _ in 0..20 {
        world.gitlab.fault(status(500));
    }
    removed(&mut world);
    world.pass_secs(30);
    let sent = |record: &Record| matches!(record, Record::Closing(closing) if closing.supposed);
    assert!(world.records.iter().any(sent), "{:?}", world.records);
    for _ in 0..2 {
        world.gitlab.faults.clear();
        world.gitlab.delays = 1000;
        world.crash();
        world.pump();
        removed(&mut world);
        world.pass_secs(30);
        assert!(
            text(&world).starts_with(&format!("{before}ERROR")),
            "{}",
            text(&world)
        );
    }
    world.gitlab.delays = 0;
    world.pass_secs(HOUR / 2);
    assert_closed_once(&world, &before);
}

/// GL-50, AUTH-05
#[test]
fn a_read_that_is_late_ends_no_output_that_the_hub_still_has() {
    let mut world = said("Job triggered by policy\n", &["one\n", "two\n"]);
    world.pass_secs(30);
    world.gitlab.delays = 2;
    world.hub.fail(unauthorized());
    world.pump();
    world.gitlab.trace.truncate(26);
    removed(&mut world);
    world.pass_secs(1);
    assert_eq!(text(&world), "Job triggered by policy\non");
    // The read that is open is answered, and so is the next.
    world.finish(None);
    world.pass_secs(HOUR / 2);
    assert_closed_once(&world, "Job triggered by policy\none\ntwo\n");
}

/// GL-72, GL-74
#[test]
fn where_the_closing_lines_stand_is_no_matter_of_what_a_hub_has_later() {
    let lines = ["one\n", "two\n", "three\n", "four\n"];
    let mut world = said("Job triggered by policy\n", &lines);
    world.print("five, which no record covers\n");
    world.pass_secs(4);
    world.gitlab.delays = 1;
    world.finish(Some(vk_hub_proto::job::FailureClass::Lost));
    world.pass_secs(1);
    let trace = text(&world);
    assert!(trace.ends_with("the job's node was lost\n"), "{trace}");
    world.hub.output.truncate(25);
    world.crash();
    world.pass_secs(120);
    assert_eq!(world.gitlab.status, Status::Failed);
    assert_eq!(text(&world), trace);
    let output = world.gitlab.output;
    assert!(
        output.is_none_or(|output| output.crc == crc(trace.as_bytes())),
        "{output:?}"
    );
}

/// GL-50, GL-72
#[test]
fn what_both_gitlab_and_the_hub_lost_is_in_no_checksum() {
    let mut world = said("Job triggered by policy\n", &["one\n", "two\n", "three\n"]);
    world.gitlab.interval = Some(3);
    world.print("four\n");
    world.pass_secs(5);
    world.hub.output.truncate(8);
    world.gitlab.trace.truncate(28);
    world.pass_secs(70);
    assert_eq!(text(&world), "Job triggered by policy\none\ntwo\n");
    world.finish(Some(vk_hub_proto::job::FailureClass::Lost));
    world.pass_secs(60);
    let closing = "ERROR: Job failed (system failure): the job's node was lost\n";
    assert_eq!(
        text(&world),
        format!("Job triggered by policy\none\ntwo\n{closing}")
    );
    let output = world.gitlab.output;
    let right = |output: crate::job::SafePoint| output.crc == crc(&world.gitlab.trace);
    assert!(output.is_none_or(right), "{output:?}");
}

/// GL-74, STATE-23
#[test]
fn an_earlier_versions_record_that_reaches_behind_the_closing_lines_writes_them_no_second_time() {
    let mut world = said("Job triggered by policy\n", &["one\n", "two\n"]);
    world.pass_secs(30);
    world.gitlab.delays = 4;
    world.finish(Some(vk_hub_proto::job::FailureClass::Lost));
    world.pass_secs(2);
    let trace = text(&world);
    assert!(trace.ends_with("the job's node was lost\n"), "{trace}");
    // It kept no place of theirs.
    let place = |record: &Record| matches!(record, Record::Closing(_));
    world.records.retain(|record| !place(record));
    let point = world.core.record().expect("a job").patched;
    assert_eq!(point.offset, trace.len() as u64);
    world.crash();
    world.pass_secs(HOUR / 2);
    assert_eq!(world.gitlab.status, Status::Failed);
    assert_eq!(text(&world), trace);
    let output = world.gitlab.output.expect("all of it is known");
    assert_eq!(output.crc, crc(trace.as_bytes()), "GL-72");
}

/// A job of whose output, of which a record says that GitLab has it, GitLab and the hub keep two
/// bytes; and a daemon that dies once so many records are kept. How many there were.
fn lost_behind_the_record(len: usize, at: Option<usize>) -> usize {
    let line = "x".repeat(len) + "\n";
    let mut world = said("Job triggered by policy\n", &["one\n", &line]);
    world.pass_secs(30);
    world.print("more\n");
    world.pass_secs(30);
    world.crash_at = at;
    world.gitlab.delays = 6;
    world.gitlab.trace.truncate(26);
    world.hub.forgotten = true;
    world.pass_secs(HOUR / 2);
    let trace = text(&world);
    assert_eq!(world.gitlab.status, Status::Failed, "{trace}");
    let closing =
        "ERROR: Job failed (system failure): the fleet hub has no record of the job any more\n";
    let whole = format!("Job triggered by policy\non{closing}");
    assert_eq!(trace, whole, "{len}, killed at {at:?}");
    let output = world.gitlab.output;
    let right = |output: crate::job::SafePoint| output.crc == crc(trace.as_bytes());
    assert!(
        output.is_none_or(right),
        "{len}, killed at {at:?}: {output:?}"
    );
    world.records.len()
}

/// GL-50, GL-72, GL-74
#[test]
fn what_was_kept_of_a_trace_that_gitlab_lost_hides_no_closing_lines_after_a_restart() {
    for len in [60, 84, 400] {
        let records = lost_behind_the_record(len, None);
        for at in 5..=records {
            lost_behind_the_record(len, Some(at));
        }
    }
}

/// GL-50, GL-55, GL-70
#[test]
fn while_gitlab_is_asked_where_it_is_the_hub_is_asked_for_nothing() {
    let mut world = said("", &["one\n", "two\n"]);
    world.gitlab.delays = 1000;
    world.hub.forgotten = true;
    world.pass_secs(60);
    assert!(text(&world).contains("ERROR"));
    world.gitlab.trace.truncate(4);
    world.gitlab.fault(status(412));
    for _ in 0..3 {
        world.gitlab.fault(status(429));
    }
    world.gitlab.delays = 0;
    world.notes.clear();
    world.pass_secs(HOUR);
    let lost = |note: &&Note| matches!(note, Note::LostByHub);
    let asked = world.notes.iter().filter(lost).count();
    assert!(asked < 4, "{asked} reads of nothing");
    assert_eq!(world.gitlab.status, Status::Failed);
    assert!(text(&world).starts_with("one\nERROR"), "{}", text(&world));
}

/// GL-50, GL-72, GL-74
#[test]
fn closing_lines_come_behind_output_that_gitlab_has_and_the_hub_lost_over_a_restart() {
    for lost in [5, 59, 61, 250] {
        let mut world = said("Job triggered by policy\n", &[&"x".repeat(300)]);
        let before = text(&world);
        assert_eq!(before.len(), 324);
        world.hub.output.truncate(300 - lost);
        world.crash();
        world.finish(Some(vk_hub_proto::job::FailureClass::Lost));
        world.pass_secs(HOUR / 2);
        let trace = text(&world);
        assert_eq!(world.gitlab.status, Status::Failed);
        let closing = "ERROR: Job failed (system failure): the job's node was lost\n";
        assert_eq!(trace, format!("{before}{closing}"), "{lost}");
        let output = world.gitlab.output;
        let right = |output: crate::job::SafePoint| output.crc == crc(trace.as_bytes());
        assert!(output.is_none_or(right), "{lost}: {output:?}");
    }
}

/// GL-32, GL-70
#[test]
fn a_202_or_412_after_the_tokens_supposed_end_is_no_end_where_gitlab_was_not_asked_before() {
    for code in [202, 412] {
        let mut job = new_job();
        job.token_ends = Some(super::world::WALL + 900);
        let mut world = World::with(job);
        world.hub.accept();
        world.pass_secs(1);
        world.print("one\n");
        world.pass_secs(1800);
        world.gitlab.fault(status(code));
        world.finish(None);
        world.pass_secs(60);
        assert_eq!(world.gitlab.status, Status::Success, "{code}");
    }
}

/// GL-50, GL-72, GL-74: a server took the closing lines, its answer was lost, and so was their end.
#[test]
fn what_gitlab_kept_of_the_closing_lines_is_no_output_and_is_not_sent_again() {
    for (over, kept) in [("gone", 16), ("gone", 1), ("restart", 16), ("restart", 1)] {
        let mut world = said("Job triggered by policy\n", &["one\n", "two\n"]);
        world.pass_secs(30);
        world.gitlab.delays = 1000;
        world.hub.refuses = Some(unauthorized());
        world.gitlab.faults.push_back(Fault::AnswerLost);
        removed(&mut world);
        world.pass_secs(1);
        let whole = "Job triggered by policy\none\ntwo\n";
        let trace = text(&world);
        assert!(trace.ends_with("removed this relay\n"), "{trace}");
        world.gitlab.trace.truncate(whole.len() + kept);
        if over == "restart" {
            world.crash();
            world.pump();
            removed(&mut world);
        }
        world.gitlab.delays = 0;
        world.pass_secs(HOUR / 2);
        assert_closed_once(&world, whole);
        assert_eq!(text(&world), trace, "{over}, {kept}");
        // A restart reads again what no record covers, and this hub says nothing any more.
        let known = world.gitlab.output.is_some();
        assert!(known || over == "restart", "{kept}: all is known");
    }
}

/// GL-50, GL-74: a server says to have less than it has, or nothing of it.
#[test]
fn closing_lines_come_whole_behind_output_that_a_server_did_not_tell_of() {
    for (preamble, range_end) in [("Job triggered by policy\n", Some(28)), ("", None)] {
        let mut world = said(preamble, &["one\n", "two\n"]);
        world.hub.forgotten = true;
        let less = crate::job::GitLabAnswer {
            range_end,
            ..status(416)
        };
        world.gitlab.fault(less);
        world.pass_secs(HOUR / 2);
        let trace = text(&world);
        let whole = format!("{preamble}one\ntwo\nERROR: Job failed (system failure): ");
        assert!(trace.starts_with(&whole), "{trace}");
        assert_eq!(world.gitlab.status, Status::Failed, "{trace}");
    }
}
