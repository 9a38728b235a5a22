//! gitlab-runner's own cases of its trace writer (`network/trace_test.go`), in this core's terms: the
//! same output, the same answers of GitLab, the same calls.
//!
//! Two values are the contract's and not upstream's: a patch holds a mebibyte (upstream's cases set 5
//! to 22 bytes), and the pauses are those of the job core.

use vk_hub_proto::client::CancelMode;

use super::fake_gitlab::{Status, status};
use super::world::{World, new_job};
use crate::NewJob;
use crate::job::{GitLabAnswer, JobStatus, Note, Record, WhyGivenUp};

/// The largest patch, in bytes.
const LARGEST: usize = 1 << 20;

/// A job whose trace is its output and nothing else, committed.
fn silent() -> World {
    let mut world = World::with(NewJob {
        preamble: String::new(),
        ..new_job()
    });
    world.hub.accept();
    world.pass_secs(1);
    assert_eq!(world.gitlab.calls(), ["running"]);
    world
}

fn accepted(end: u64) -> GitLabAnswer {
    GitLabAnswer {
        range_end: Some(end),
        job_status: Some(JobStatus::Running),
        ..status(202)
    }
}

/// The calls that carry trace, and those that end the job.
fn calls(world: &mut World) -> Vec<String> {
    let calls = world.gitlab.calls();
    calls
        .into_iter()
        .filter(|call| call != "keep-alive" && !call.ends_with("+0"))
        .collect()
}

/// GL-32, GL-33, GL-53, GL-59, PORT-14
#[test]
fn update_job() {
    // What the answer means to a job whose final state it is: told again, delivered, or undelivered.
    let rows = [
        (200, None, &["success"][..], Some(true)),
        (202, None, &["success", "success"], Some(true)),
        (403, None, &["success"], Some(false)),
        (404, Some(404), &["success"], Some(false)),
        (
            412,
            Some(412),
            &["success", "patch 0+5", "success"],
            Some(true),
        ),
        (400, None, &["success", "success"], Some(true)),
    ];
    for (answer, proxy, told, delivered) in rows {
        let mut world = silent();
        world.print("trace");
        world.pass_secs(5);
        assert_eq!(calls(&mut world), ["patch 0+5"]);
        world.gitlab.fault(status(answer));
        world.finish(None);
        if answer == 412 {
            world.gitlab.trace.clear();
        }
        world.pass_secs(60);
        assert_eq!(calls(&mut world), told, "{answer}");
        let reported = world.records.iter().rev().find_map(|record| match record {
            Record::Reported { delivered } => Some(*delivered),
            _ => None,
        });
        assert_eq!(reported, delivered, "{answer}");
        let suspects: Vec<u16> = suspects(&world);
        assert_eq!(suspects, Vec::from_iter(proxy), "{answer}");
        assert_eq!(world.hub.cancels, [], "{answer}");
        world.assert_dropped();
    }
}

/// The statuses for which a proxy is suspected.
fn suspects(world: &World) -> Vec<u16> {
    let notes = world.notes.iter();
    notes
        .filter_map(|note| match note {
            Note::ProxySuspected { status } => Some(*status),
            _ => None,
        })
        .collect()
}

/// GL-24, GL-39, GL-53
#[test]
fn a_404_to_a_put_that_says_running_is_a_proxys_and_stops_the_job() {
    for call in ["running", "keep-alive"] {
        let mut world = match call {
            "running" => World::with(new_job()),
            _ => silent(),
        };
        world.gitlab.fault(status(404));
        world.hub.accept();
        world.pass_secs(600);
        assert_eq!(world.gitlab.calls(), [call]);
        assert_eq!(suspects(&world), [404], "{call}");
        let given_up = &Note::GivenUp(WhyGivenUp::NotFound);
        assert!(world.notes.contains(given_up), "{call}");
        assert_eq!(world.hub.cancels, [CancelMode::Immediate], "{call}");
        world.assert_dropped();
    }
}

/// GL-35, GL-36, GL-37, PORT-15
#[test]
fn update_job_as_keep_alive() {
    let (graceful, immediate) = (CancelMode::Graceful, CancelMode::Immediate);
    for (job_status, cancels) in [
        (None, &[][..]),
        (Some(JobStatus::Canceled), &[immediate]),
        (Some(JobStatus::Failed), &[immediate]),
        (Some(JobStatus::Canceling), &[graceful]),
    ] {
        let mut world = silent();
        world.gitlab.fault(GitLabAnswer {
            job_status,
            ..status(200)
        });
        world.pass_secs(95);
        let goes_on = cancels != [immediate];
        let keep_alives = if goes_on { 3 } else { 1 };
        let expected = vec!["keep-alive"; keep_alives];
        assert_eq!(world.gitlab.calls(), expected, "{job_status:?}");
        assert_eq!(world.hub.cancels, cancels, "{job_status:?}");
        assert_eq!(world.removed, !goes_on, "{job_status:?}");
    }
}

/// GL-21, PORT-17
#[test]
fn range_mismatch_patch_trace() {
    for ours in [11, 15] {
        let mut world = silent();
        world.print(&"trace trace trace"[..ours]);
        world.pass_secs(5);
        world.gitlab.trace.truncate(10);
        world.print(&"trace trace trace"[ours..]);
        world.pass_secs(10);
        let first = format!("patch 0+{ours}");
        let refused = format!("patch {ours}+{}", 17 - ours);
        // What is summed is sent again up to where it was, and the rest behind it.
        let again = format!("patch 10+{}", ours - 10);
        let calls = calls(&mut world);
        assert_eq!(calls, [first, refused.clone(), again, refused], "{ours}");
        assert_eq!(world.gitlab.trace, b"trace trace trace", "{ours}");
        assert_eq!(world.hub.cancels, [], "{ours}");
    }
}

/// GL-17, GL-20, GL-36, PORT-18
#[test]
fn patch_trace_updated_trace() {
    let (running, canceling) = (Status::Running, Status::Canceling);
    let rows = [
        ("test", running, Some("patch 0+4"), false),
        ("", running, None, false),
        (" ", running, Some("patch 4+1"), false),
        ("test", running, Some("patch 5+4"), false),
        ("test", canceling, Some("patch 9+4"), true),
        (" ", canceling, Some("patch 13+1"), true),
        ("", canceling, None, true),
    ];
    let mut world = silent();
    for (at, (appended, status, patch, cancelled)) in rows.into_iter().enumerate() {
        world.gitlab.status = status;
        world.print(appended);
        world.pass_secs(4);
        assert_eq!(calls(&mut world), Vec::from_iter(patch), "row {at}");
        let cancel = world.is_cancelled(CancelMode::Graceful);
        assert_eq!(cancel, cancelled, "row {at}");
    }
    assert_eq!(world.gitlab.trace, b"test testtest ");
}

/// PORT-22
#[test]
fn aborted_patch_trace() {
    let told = |job_status| GitLabAnswer {
        job_status: Some(job_status),
        ..accepted(17)
    };
    let mut world = silent();
    world.gitlab.fault(told(JobStatus::Canceling));
    world.gitlab.trace = b"trace-test-string".to_vec();
    world.print("trace-test-string");
    world.pass_secs(5);
    assert_eq!(world.hub.cancels, [CancelMode::Graceful]);
    world.print("more");
    world.pass_secs(5);
    assert_eq!(
        calls(&mut world),
        ["patch 0+17", "patch 17+4"],
        "17 bytes are sent and the trace goes on"
    );
    for job_status in [JobStatus::Canceled, JobStatus::Failed] {
        let mut world = silent();
        world.gitlab.fault(told(job_status));
        world.print("trace-test-string");
        world.pass_secs(600);
        assert_eq!(world.hub.cancels, [CancelMode::Immediate]);
        assert_eq!(world.gitlab.calls(), ["patch 0+17"], "nothing more");
        world.assert_dropped();
    }
}

/// PORT-23
#[test]
fn job_failed_state_patch_trace() {
    let mut world = silent();
    world.gitlab.fault(GitLabAnswer {
        job_status: Some(JobStatus::Failed),
        ..status(202)
    });
    world.print("trace");
    world.pass_secs(600);
    assert_eq!(world.hub.cancels, [CancelMode::Immediate]);
    assert_eq!(world.gitlab.calls(), ["patch 0+5"]);
    world.assert_dropped();
}

/// PORT-24
#[test]
fn job_finish_trace_update_retry() {
    let mut world = silent();
    let stored = b"My trace send";
    // Upstream's network layer says how far it came; GitLab says it with a 416 (GL-20).
    let has = |size| GitLabAnswer {
        range_end: Some(size),
        ..status(416)
    };
    world.gitlab.fault(has(3));
    world.gitlab.fault(status(500));
    world.gitlab.fault(has(9));
    world.gitlab.fault(has(6));
    world.gitlab.trace = stored[..6].to_vec();
    world.print("My trace send");
    world.finish(None);
    world.pass_secs(60);
    assert_eq!(
        calls(&mut world),
        [
            "patch 0+13",
            "patch 3+10",
            "patch 3+10",
            "patch 9+4",
            // Only what was let go is read again, so upstream's one patch is two.
            "patch 6+3",
            "patch 9+4",
            "success"
        ]
    );
    world.assert_right_end(Status::Success);
    assert_eq!(world.gitlab.trace, stored);
}

/// PORT-25
#[test]
fn job_delayed_trace_processing_with_rejection() {
    let mut world = silent();
    let size = LARGEST as u64 + 3;
    for last in [412, 200] {
        world.gitlab.fault(accepted(LARGEST as u64));
        world.gitlab.fault(accepted(size));
        for answer in [202, 202, last] {
            world.gitlab.fault(status(answer));
        }
    }
    world.hub.output = vec![b'x'; LARGEST + 3];
    world.finish(None);
    world.pass_secs(600);
    let round = [
        &format!("patch 0+{LARGEST}"),
        &format!("patch {LARGEST}+3"),
        "success",
        "success",
        "success",
    ];
    assert_eq!(calls(&mut world), [round, round].concat());
    world.assert_dropped();
}

/// PORT-26
#[test]
fn job_max_trace_patch_size() {
    let mut world = silent();
    world.hub.output = vec![b'x'; 2 * LARGEST + 3];
    world.finish(None);
    world.pass_secs(60);
    assert_eq!(
        calls(&mut world),
        [
            format!("patch 0+{LARGEST}"),
            format!("patch {LARGEST}+{LARGEST}"),
            format!("patch {}+3", 2 * LARGEST),
            "success".to_owned(),
        ]
    );
    world.assert_right_end(Status::Success);
}

/// PORT-27
#[test]
fn canceling_job_incremental_update() {
    for patch_says_canceling in [false, true] {
        let mut world = silent();
        world.print("123456789\n");
        if patch_says_canceling {
            world.gitlab.status = Status::Canceling;
        }
        world.pass_secs(5);
        // Where no patch said so, a keep-alive does.
        world.gitlab.status = Status::Canceling;
        world.pass_secs(95);
        assert_eq!(world.hub.cancels, [CancelMode::Graceful], "once");
        world.print("987654321\n");
        world.pass_secs(40);
        world.finish(None);
        world.pass_secs(20);
        assert_eq!(
            calls(&mut world),
            ["patch 0+10", "patch 10+10", "success"],
            "a cancel does not stop the patches"
        );
        world.assert_right_end(Status::Canceled);
    }
}

/// PORT-28
#[test]
fn job_checksum() {
    let mut world = silent();
    world.print("This is a basic log line");
    world.finish(None);
    world.pass_secs(20);
    world.assert_right_end(Status::Success);
    let output = world.gitlab.output.expect("a checksum");
    assert_eq!((output.crc, output.offset), (0x367d_feeb, 24));
}

/// PORT-29
#[test]
fn job_bytesize() {
    let mut world = silent();
    world.print("Build trace with secret and multi-byte ü character");
    world.finish(None);
    world.pass_secs(20);
    world.assert_right_end(Status::Success);
    let output = world.gitlab.output.expect("a checksum");
    assert_eq!((output.crc, output.offset), (0x0d7c_f601, 51));
}
