//! gitlab-runner's own cases of its trace writer (`network/trace_test.go`), in this core's terms: the
//! same output, the same answers of GitLab, the same calls.
//!
//! Two values are the contract's and not upstream's: a patch holds a mebibyte (upstream's cases set 5
//! to 22 bytes), and the pauses are those of the job core.

use vk_hub_proto::client::CancelMode;

use super::fake_gitlab::{Status, status};
use super::world::{World, new_job};
use crate::NewJob;
use crate::job::{GitLabAnswer, JobStatus};

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
