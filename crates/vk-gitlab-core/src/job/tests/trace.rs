//! Patches, keep-alives, offsets and checksums.

use std::time::Duration;

use vk_hub_proto::client::CancelMode;

use super::fake_gitlab::{Fault, Status, status};
use super::fake_hub::HUB_JOB;
use super::world::{World, crc, new_job};
use crate::HubFailure;
use crate::job::{GitLabAnswer, JobStatus, Note, Record, WhyGivenUp};

fn at(world: &World, what: &str) -> Vec<u64> {
    world
        .timeline
        .iter()
        .filter(|(_, call)| call.starts_with(what))
        .map(|(at, _)| at.as_secs())
        .collect()
}

/// GL-18, GL-20
#[test]
fn a_patch_has_at_most_a_mebibyte_and_the_next_starts_where_it_ended() {
    let mut world = World::running();
    world.hub.output = vec![b'x'; (2 << 20) + 5];
    world.pass_secs(20);
    assert_eq!(
        world.gitlab.calls(),
        [
            "patch 24+1048576",
            "patch 1048600+1048576",
            "patch 2097176+5"
        ]
    );
}

/// GL-19
#[test]
fn patches_go_every_interval_as_gitlab_names_it() {
    let mut world = World::running();
    world.timeline.clear();
    world.gitlab.interval = Some(10);
    for _ in 0..60 {
        world.print("x");
        world.pass_secs(1);
    }
    let patches = at(&world, "patch");
    let gaps: Vec<u64> = patches.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap == 10), "{gaps:?}");
    assert!(gaps.len() > 3);
}

/// GL-19
#[test]
fn the_interval_is_three_seconds_at_first_and_never_more_than_fifteen_minutes() {
    let mut world = World::running();
    world.timeline.clear();
    for _ in 0..12 {
        world.print("x");
        world.pass_secs(1);
    }
    let patches = at(&world, "patch");
    assert!(patches.windows(2).all(|pair| pair[1] - pair[0] == 3));
    world.gitlab.interval = Some(100_000);
    world.print("x");
    world.pass_secs(10);
    world.timeline.clear();
    world.print("y");
    world.pass_secs(1000);
    assert_eq!(at(&world, "patch").len(), 1, "after 900 s");
}

/// GL-55
#[test]
fn patches_are_paced_to_three_a_second_in_the_final_phase() {
    let mut world = World::running();
    world.pass_secs(5);
    world.hub.output = vec![b'x'; 9 << 20];
    world.timeline.clear();
    world.finish(None);
    world.pass_secs(30);
    world.assert_right_end(Status::Success);
    let moments: Vec<Duration> = world.timeline.iter().map(|(at, _)| *at).collect();
    for window in moments.windows(4) {
        assert!(
            window[3] - window[0] >= Duration::from_secs(1),
            "{window:?}"
        );
    }
    assert!(moments.last().expect("calls").as_secs() <= 12, "no slower");
}

/// GL-29, GL-69, GL-72
#[test]
fn a_silent_job_is_kept_alive_with_checksum_and_size() {
    let mut world = World::running();
    world.timeline.clear();
    world.pass_secs(125);
    assert_eq!(at(&world, "keep-alive"), [30, 60, 90, 120]);
    world.print("x");
    world.pass_secs(25);
    world.timeline.clear();
    world.pass_secs(31);
    assert_eq!(at(&world, "keep-alive"), [156], "30 s after the patch");
}

/// GL-58, GL-69
#[test]
fn a_job_whose_patches_fail_is_kept_alive_too() {
    let mut world = World::running();
    world.timeline.clear();
    world.print("x");
    // Every patch fails; the keep-alives come through.
    for _ in 0..9 {
        world.gitlab.fault(status(502));
    }
    world.pass_secs(29);
    assert_eq!(at(&world, "keep-alive"), [0u64; 0]);
    world.gitlab.faults.clear();
    world.gitlab.fault(status(502));
    world.pass_secs(3);
    assert_eq!(at(&world, "keep-alive"), [30]);
}

/// GL-69
#[test]
fn a_202_to_a_keep_alive_does_not_count() {
    let mut world = World::running();
    world.pass_secs(20);
    world.timeline.clear();
    world.gitlab.fault(status(202));
    world.pass_secs(50);
    assert_eq!(at(&world, "keep-alive"), [30, 33, 63]);
}

/// GL-58
#[test]
fn a_cancel_of_a_silent_job_is_heard_of_within_31_seconds() {
    let mut world = World::running();
    world.gitlab.interval = Some(60);
    world.print("x");
    world.pass_secs(4);
    world.gitlab.status = Status::Canceling;
    world.pass_secs(31);
    assert_eq!(world.hub.cancels.len(), 1);
}

/// GL-21, GL-50
#[test]
fn a_416_moves_to_gitlabs_size_whether_it_is_behind_ahead_or_empty() {
    for size in [30u64, 24, 10, 0] {
        let mut world = World::running();
        world.print("0123456789");
        world.pass_secs(5);
        assert_eq!(world.gitlab.trace.len(), 34);
        world
            .gitlab
            .trace
            .truncate(usize::try_from(size).expect("small"));
        world.print("abc");
        world.pass_secs(10);
        world.finish(None);
        world.pass_secs(10);
        world.assert_right_end(Status::Success);
        assert!(world.notes.contains(&Note::TraceBehind {
            gitlab: size,
            acknowledged: 34
        }));
    }
}

/// GL-21, GL-50
#[test]
fn a_patch_that_arrived_without_its_answer_is_not_sent_twice() {
    let mut world = World::running();
    world.gitlab.faults.push_back(Fault::AnswerLost);
    world.print("0123456789");
    world.pass_secs(10);
    assert_eq!(
        world.gitlab.calls(),
        ["patch 24+10", "patch 24+10"],
        "the second is answered with a 416"
    );
    world.print("abc");
    world.finish(None);
    world.pass_secs(10);
    world.assert_right_end(Status::Success);
}

/// GL-50
#[test]
fn a_gitlab_that_has_more_than_there_is_waits_and_then_ends() {
    let mut world = World::running();
    let ahead = GitLabAnswer {
        range_end: Some(500),
        ..status(416)
    };
    world.gitlab.fault(ahead);
    world.print("0123456789");
    world.pass_secs(200);
    let calls = world.gitlab.calls();
    assert!(
        calls[1..].iter().all(|call| call == "keep-alive"),
        "waits for the rest: {calls:?}"
    );
    world.gitlab.trace.resize(500, b'?');
    world.finish(None);
    world.pass_secs(10);
    assert_eq!(world.gitlab.status, Status::Success);
    assert!(world.notes.contains(&Note::TraceAhead {
        gitlab: 500,
        ours: 34
    }));
    let output = world.gitlab.output.expect("a checksum");
    assert_eq!(output.offset, 34, "the checksum is of what is ours");
    world.assert_dropped();
}

/// GL-21
#[test]
fn offsets_that_never_fit_are_not_tried_in_a_tight_loop() {
    let mut world = World::running();
    for _ in 0..100 {
        world.gitlab.fault(GitLabAnswer {
            range_end: Some(0),
            ..status(416)
        });
    }
    world.print("x");
    world.pass_secs(30);
    assert!(world.gitlab.calls.len() <= 15, "{:?}", world.gitlab.calls);
}

/// GL-49
#[test]
fn a_409_is_tried_again_at_the_same_offset_after_the_interval() {
    let mut world = World::running();
    world.pass_secs(5);
    world.gitlab.fault(status(409));
    world.timeline.clear();
    world.print("x");
    world.pass_secs(5);
    assert_eq!(world.gitlab.calls(), ["patch 24+1", "patch 24+1"]);
    assert_eq!(at(&world, "patch"), [6, 9]);
}

/// GL-55
#[test]
fn a_429_holds_everything_back_for_as_long_as_it_says_or_a_while() {
    let mut world = World::running();
    world.pass_secs(5);
    world.gitlab.fault(GitLabAnswer {
        retry_after: Some(Duration::from_secs(60)),
        ..status(429)
    });
    world.timeline.clear();
    world.print("x");
    world.pass_secs(70);
    assert_eq!(at(&world, ""), [6, 66, 66], "no keep-alive meanwhile");
    let mut world = World::running();
    world.pass_secs(5);
    world.gitlab.fault(status(429));
    world.timeline.clear();
    world.print("x");
    world.pass_secs(12);
    let calls = at(&world, "patch");
    assert_eq!(calls.len(), 2);
    assert!(
        (11..=12).contains(&calls[1]),
        "5 s and up to a quarter more"
    );
}

/// GL-23, GL-24, GL-52, GL-53
#[test]
fn a_403_or_404_to_a_patch_stops_the_job_and_nothing_more_is_written() {
    for code in [403, 404] {
        let mut world = World::running();
        world.gitlab.fault(status(code));
        world.print("x");
        world.pass_secs(120);
        assert_eq!(world.gitlab.calls(), ["patch 24+1"], "{code}");
        assert_eq!(world.hub.cancels.len(), 1);
        world.assert_dropped();
        let proxy = world.notes.contains(&Note::ProxySuspected { status: 404 });
        assert_eq!(proxy, code == 404);
        let why = if proxy {
            WhyGivenUp::NotFound
        } else {
            WhyGivenUp::Forbidden
        };
        assert!(world.notes.contains(&Note::GivenUp(why)));
    }
}

/// GL-35
#[test]
fn other_job_statuses_and_statuses_change_nothing() {
    for answer in [
        GitLabAnswer {
            job_status: Some(JobStatus::Other),
            ..status(500)
        },
        status(200),
        status(400),
        GitLabAnswer::default(),
    ] {
        let mut world = World::running();
        world.gitlab.fault(answer);
        world.print("x");
        world.pass_secs(10);
        world.finish(None);
        world.pass_secs(10);
        world.assert_right_end(Status::Success);
        assert_eq!(world.hub.cancels, []);
    }
}

/// GL-72, STATE-23
#[test]
fn the_checksum_is_kept_with_its_offset_at_most_every_ten_seconds() {
    let mut world = World::running();
    for n in 0..60 {
        world.print(&format!("line {n}\n"));
        world.pass_secs(1);
    }
    let points: Vec<_> = world
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Patched(point) => Some(*point),
            _ => None,
        })
        .collect();
    assert!((5..=7).contains(&points.len()), "{points:?}");
    for point in points {
        let end = usize::try_from(point.offset).expect("small");
        assert_eq!(point.crc, crc(&world.gitlab.trace[..end]));
    }
}

/// GL-72
#[test]
fn a_restart_reads_and_sums_only_what_no_record_covers() {
    // Lines as they come, and more than one patch takes.
    for (pieces, bytes, uncovered) in [(30, 7, 70), (5, 1 << 20, 2 << 20)] {
        let mut world = World::running();
        for _ in 0..pieces {
            world.print(&"x".repeat(bytes));
            world.pass_secs(1);
        }
        world.pass_secs(12);
        let preamble = new_job().preamble.len() as u64;
        let kept = world.records.iter().rev().find_map(|record| match record {
            Record::Patched(point) => Some(point.offset - preamble),
            _ => None,
        });
        let kept = kept.expect("a checksum is kept");
        let total = (pieces * bytes) as u64;
        assert!(kept > 0 && total - kept > 0, "{kept} of {total} bytes");
        assert!(total - kept <= uncovered, "{kept} of {total} bytes");
        assert_eq!(world.gitlab.trace.len() as u64, preamble + total);
        world.hub.reads.clear();
        world.crash();
        world.print("after the restart");
        world.finish(None);
        world.pass_secs(20);
        world.assert_right_end(Status::Success);
        let read: u64 = world.hub.reads.iter().map(|(_, len)| len).sum();
        let rest = world.hub.output.len() as u64 - kept;
        assert_eq!(read, rest, "of {total} bytes: {:?}", world.hub.reads);
        assert_eq!(world.hub.reads[0].0, kept, "{:?}", world.hub.reads);
    }
}

/// GL-74
#[test]
fn a_trace_with_preamble_and_no_output_yet_is_patched_from_the_preamble() {
    let mut world = World::running();
    assert_eq!(world.gitlab.trace, new_job().preamble.as_bytes());
    assert_eq!(
        world.core.record().and_then(|job| job.hub_job),
        Some(HUB_JOB)
    );
    world.print("x");
    world.pass_secs(5);
    assert_eq!(world.gitlab.trace.len(), new_job().preamble.len() + 1);
}

/// GL-30
#[test]
fn reads_that_fail_are_made_again() {
    let mut world = World::running();
    for _ in 0..3 {
        world.hub.fail(HubFailure::transport("cut"));
    }
    world.print("x\n");
    world.finish(None);
    world.pass_secs(60);
    world.assert_right_end(Status::Success);
}

/// GL-19, GL-58
#[test]
fn a_silent_job_whose_log_is_watched_is_asked_about_at_the_interval_until_nobody_watches() {
    let mut world = World::running();
    world.gitlab.interval = Some(3);
    world.print("x");
    world.pass_secs(5);
    world.timeline.clear();
    world.pass_secs(60);
    let asked: Vec<Duration> = world
        .timeline
        .iter()
        .filter(|(_, call)| call == "patch 25+0")
        .map(|(at, _)| *at)
        .collect();
    assert!(asked.len() >= 16, "{:?}", world.timeline);
    let widest = asked.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(widest <= Some(Duration::from_secs(4)), "{asked:?}");
    // Asking is no output: the keep-alives go on.
    assert_eq!(at(&world, "keep-alive").len(), 2);

    world.gitlab.interval = Some(60);
    world.pass_secs(5);
    world.timeline.clear();
    world.pass_secs(180);
    assert!(at(&world, "patch").len() <= 3, "{:?}", world.timeline);
    assert_eq!(at(&world, "keep-alive").len(), 6);
}

/// GL-36, GL-37, GL-58
#[test]
fn a_cancel_of_a_silent_job_is_learnt_in_4_s_while_watched_and_in_31_s_at_most() {
    for (interval, within) in [(3, 4), (60, 31), (900, 31)] {
        for start in 0..35 {
            for status in [Status::Canceling, Status::Canceled] {
                let mut world = World::running();
                world.gitlab.interval = Some(interval);
                world.print("x");
                world.pass_secs(10);
                world.pass_secs(start);
                world.gitlab.status = status;
                world.pass_secs(within);
                let mode = match status {
                    Status::Canceling => CancelMode::Graceful,
                    _ => CancelMode::Immediate,
                };
                assert_eq!(world.hub.cancels, [mode], "{interval} {start} {status:?}");
            }
        }
    }
}

/// GL-19
#[test]
fn output_goes_out_before_any_question_and_a_question_delays_none() {
    let mut world = World::running();
    world.gitlab.interval = Some(3);
    world.print("x");
    world.pass_secs(4);
    world.timeline.clear();
    for _ in 0..20 {
        world.print("x");
        world.pass_secs(1);
    }
    let asked = world
        .timeline
        .iter()
        .filter(|(_, call)| call.ends_with("+0"));
    assert_eq!(asked.count(), 0, "{:?}", world.timeline);
    world.pass_secs(10);
    world.timeline.clear();
    world.print("after a silence");
    world.pass_secs(1);
    assert_eq!(at(&world, "patch").len(), 1, "{:?}", world.timeline);
}

/// GL-50
#[test]
fn a_question_finds_a_trace_that_gitlab_lost() {
    let mut world = World::running();
    world.gitlab.interval = Some(3);
    world.print("some output\n");
    world.pass_secs(10);
    let whole = world.gitlab.trace.clone();
    world.gitlab.trace.truncate(5);
    // A read of the hub is held open: the next one follows it.
    world.pass_secs(70);
    assert_eq!(world.gitlab.trace, whole);
}

/// STATE-23
#[test]
fn questions_write_nothing_down() {
    let mut world = World::running();
    world.gitlab.interval = Some(3);
    world.print("x");
    world.pass_secs(15);
    let before = world.records.len();
    world.pass_secs(60);
    assert_eq!(world.records.len(), before);
}
