use vk_hub_proto::dispatch::RefusalReason;
use vk_hub_proto::job::{FailureClass, JobResult};
use vk_hub_proto::{JobId, ReservationId};
use vk_node_core::io::{Project, RunPlan, StartedJob};
use vk_node_core::ledger::Amount;
use vk_node_core::{Budgets, Record};

use super::*;
use crate::job::wire::{CacheCounts, Progress, PullCounts};

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
}

fn text(metrics: &Metrics) -> String {
    let now = Snapshot::default();
    metrics.text(&now, None).unwrap()
}

fn job(number: u8) -> JobId {
    JobId::from_bytes([number; 16])
}

fn started(number: u8) -> Record {
    let amount = Amount {
        mem_mib: 1,
        disk_bytes: 1,
    };
    Record::Started(Box::new(StartedJob {
        job: job(number),
        gitlab_id: 1,
        project: Project {
            server: "http://gitlab".to_owned(),
            id: 5,
        },
        plan: RunPlan {
            slot: 0,
            project_slot: 0,
            cpus: 2,
            mem_mib: 512,
            disk_bytes: 1,
            warnings: Vec::new(),
        },
        granted: amount,
        asked: amount,
    }))
}

fn progress(times: u32) -> Progress {
    Progress {
        boot_ms: Some(400),
        boots: times,
        output_len: u64::from(times) * 100,
        caches: CacheCounts {
            hits: times,
            misses: 2 * times,
            errors: 3 * times,
        },
        image_pulls: PullCounts {
            done: times,
            failed: 4 * times,
        },
        ..Progress::default()
    }
}

#[test]
fn room_and_states_are_shown_as_they_stand() {
    let metrics = Metrics::new("1.2.3");
    let amount = |mem_mib, disk_bytes| Amount {
        mem_mib,
        disk_bytes,
    };
    let mut now = Snapshot {
        room: Room {
            budgets: Budgets {
                mem_mib: Some(10),
                disk_bytes: None,
            },
            granted: amount(4, 7),
            asked: amount(6, 9),
            reservations: 3,
            waiting: 1,
        },
        jobs: [1, 2, 3],
        state: Some(NodeState::Draining),
        connected: true,
        store_failed: None,
    };
    let disk = DiskFree {
        bytes: 1000,
        inodes: 50,
    };
    let shown = metrics.text(&now, Some(disk)).unwrap();
    for line in [
        "vk_node_build_info{version=\"1.2.3\"} 1",
        "vk_node_memory_budget_bytes 10485760",
        "vk_node_memory_granted_bytes 4194304",
        "vk_node_memory_asked_bytes 6291456",
        "vk_node_memory_free_bytes 6291456",
        "vk_node_disk_granted_bytes 7",
        "vk_node_disk_asked_bytes 9",
        "vk_node_disk_free_bytes 1000",
        "vk_node_disk_free_inodes 50",
        "vk_node_reservations 3",
        "vk_node_jobs_waiting 1",
        "vk_node_hub_connected 1",
        "vk_node_state{state=\"draining\"} 1",
        "vk_node_jobs{state=\"accepted\"} 1",
        "vk_node_jobs{state=\"running\"} 2",
        "vk_node_jobs{state=\"finished\"} 3",
    ] {
        has(&shown, line);
    }
    assert!(shown.ends_with("# EOF\n"));
    // Of what nothing bounds there is no number.
    for none in [
        "vk_node_disk_budget_bytes ",
        "vk_node_disk_grantable_bytes ",
    ] {
        assert!(!shown.lines().any(|line| line.starts_with(none)), "{none}");
    }
    now.state = Some(NodeState::Ready);
    let shown = metrics.text(&now, Some(disk)).unwrap();
    has(&shown, "vk_node_state{state=\"ready\"} 1");
    assert!(!shown.contains("draining"));
}

#[test]
fn refusals_are_counted_by_what_was_refused_and_why() {
    let metrics = Metrics::new("1");
    let reservation = ReservationId::from_bytes([1; 16]);
    let refused = |reason| OfferReply::Refused {
        reason,
        message: None,
    };
    for reply in [
        refused(RefusalReason::Memory),
        refused(RefusalReason::Memory),
        refused(RefusalReason::NotReady),
        OfferReply::Accepted { lease_secs: 60 },
    ] {
        metrics.says(&NodeJobMessage::OfferReply { reservation, reply });
    }
    let state = RunState::Refused {
        reason: RefusalReason::NoReservation,
        message: None,
    };
    metrics.says(&NodeJobMessage::Job { job: job(1), state });
    let shown = text(&metrics);
    let line =
        |of, reason, n| format!("vk_node_refusals_total{{of=\"{of}\",reason=\"{reason}\"}} {n}");
    has(&shown, &line("offer", "memory", 2));
    has(&shown, &line("offer", "not_ready", 1));
    has(&shown, &line("start", "no_reservation", 1));
    assert_eq!(shown.matches("vk_node_refusals_total{").count(), 3);
}

#[test]
fn what_a_job_tells_is_counted_by_how_much_it_grew() {
    let metrics = Metrics::new("1");
    let mut tally = Tally::new(Arc::clone(&metrics));
    tally.records(&[started(1)]);
    for told in [progress(1), progress(1), progress(3)] {
        tally.progress(job(1), &told);
    }
    // One of before this daemon: where it stood was counted by the former one.
    tally.earlier(job(2));
    tally.progress(job(2), &progress(5));
    tally.progress(job(2), &progress(6));
    // One that nobody knows.
    tally.progress(job(3), &progress(9));
    let shown = text(&metrics);
    for line in [
        "vk_node_output_bytes_total 400",
        "vk_node_boot_seconds_count 4",
        "vk_node_boot_seconds_bucket{le=\"0.2\"} 0",
        "vk_node_boot_seconds_bucket{le=\"0.5\"} 4",
        "vk_node_cache_restores_total{result=\"hit\"} 4",
        "vk_node_cache_restores_total{result=\"miss\"} 8",
        "vk_node_cache_restores_total{result=\"error\"} 12",
        "vk_node_image_pulls_total{result=\"ok\"} 4",
        "vk_node_image_pulls_total{result=\"failed\"} 16",
    ] {
        has(&shown, line);
    }
}

#[test]
fn results_are_counted_by_their_class_and_no_project_is_named() {
    let metrics = Metrics::new("1");
    let mut tally = Tally::new(Arc::clone(&metrics));
    let finished = |number, failure| Record::Finished {
        job: job(number),
        result: JobResult {
            failure,
            exit_code: None,
            message: Some("acme/web".to_owned()),
            output_len: 0,
            artifacts: Vec::new(),
            usage: None,
        },
    };
    tally.records(&[started(1), finished(1, None)]);
    tally.records(&[started(2), finished(2, Some(FailureClass::ImagePull))]);
    tally.records(&[Record::Recorded { job: job(1) }]);
    tally.progress(job(1), &progress(1));
    let shown = text(&metrics);
    has(&shown, "vk_node_jobs_ended_total{result=\"success\"} 1");
    has(&shown, "vk_node_jobs_ended_total{result=\"image_pull\"} 1");
    has(&shown, "vk_node_output_bytes_total 0");
    assert!(
        !shown.contains("acme") && !shown.contains("gitlab\""),
        "{shown}"
    );
}
