//! Settled jobs and the history.

use vk_hub_core::{Answer, Effect, OperatorRequest, Record};
use vk_hub_proto::client::{CancelMode, ErrorCode, JobState};

use crate::bench::{Bench, code, job, result};

/// API-44, API-49
#[test]
fn settling_drops_the_output_and_keeps_the_record() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.writes(session, 1, 0, 9);
    bench.synced(1, 9);
    bench.ends(session, 1, result());
    let (settled, effects) = bench.settle(1);
    assert_eq!(settled, Answer::Settled);
    assert!(effects.contains(&Effect::DropOutput { job: job(1) }));
    let view = bench.view(1);
    assert_eq!((view.state, view.output_len), (JobState::Finished, 9));
    let (settled, effects) = bench.settle(1);
    assert_eq!((settled, effects.len()), (Answer::Settled, 1), "again");
}

/// API-63
#[test]
fn an_unfinished_job_cannot_be_settled() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.cancel(1, CancelMode::Immediate);
    let (refused, _) = bench.settle(1);
    assert_eq!(code(&refused), (409, ErrorCode::Conflict));
}

/// API-71
#[test]
fn the_newest_settled_jobs_are_kept_and_unsettled_ones_whatever_their_age() {
    let mut bench = Bench::with(|settings| settings.job_history = 2);
    for n in 1..7 {
        bench.submit(n, None);
        bench.cancel(n, CancelMode::Immediate);
    }
    for n in [5, 2, 4, 3] {
        bench.settle(n);
    }
    let left = |bench: &Bench| {
        let ids = bench.fleet.jobs().map(|job| job.view.id.as_bytes()[0]);
        ids.collect::<Vec<_>>()
    };
    assert_eq!(left(&bench), [1, 3, 4, 6]);
    bench.pass_secs(10_000_000);
    assert_eq!(left(&bench), [1, 3, 4, 6]);
    bench.settings.job_history = 1;
    bench.restart();
    bench.step(vk_hub_core::Input::Timeout);
    assert_eq!(left(&bench), [1, 3, 6], "in the order they were settled");
}

/// API-71
#[test]
fn where_the_operator_wants_it_jobs_nobody_settles_are_settled_by_the_hub() {
    let mut bench = Bench::with(|settings| {
        settings.settle_after = Some(std::time::Duration::from_secs(1_000));
    });
    for n in 1..3 {
        bench.submit(n, None);
        bench.cancel(n, CancelMode::Immediate);
    }
    bench.settle(1);
    bench.pass_secs(500);
    bench.restart();
    bench.pass_secs(600);
    assert!(!bench.fleet.job(job(2)).unwrap().settled);
    let effects = bench.pass_secs(600);
    assert!(bench.fleet.job(job(2)).unwrap().settled);
    assert_eq!(effects, [Effect::DropOutput { job: job(2) }]);
}

/// API-71
#[test]
fn operators_may_settle_and_cancel_anybodys_job() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    let (refused, _) = bench.operate(OperatorRequest::SettleJob { job: job(1) });
    assert_eq!(code(&refused), (409, ErrorCode::Conflict));
    let (taken, effects) = bench.operate(OperatorRequest::CancelJob {
        job: job(1),
        mode: CancelMode::Immediate,
    });
    assert!(matches!(taken, Answer::CancelTaken(_)));
    assert!(effects.contains(&crate::bench::stop(session, 1, CancelMode::Immediate)));
    bench.ends(session, 1, result());
    let (settled, _) = bench.operate(OperatorRequest::SettleJob { job: job(1) });
    assert_eq!(settled, Answer::Settled);
    assert!(bench.fleet.job(job(1)).unwrap().settled);
    let unknown = OperatorRequest::SettleJob { job: job(9) };
    assert_eq!(code(&bench.operate(unknown).0), (404, ErrorCode::NotFound));
    let settled = |record: &&Record| matches!(record, Record::JobSettled { .. });
    assert_eq!(bench.records.iter().filter(settled).count(), 1);
}
