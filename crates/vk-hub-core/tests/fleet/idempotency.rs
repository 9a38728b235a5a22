//! Creates that come again.

use std::time::Duration;

use vk_hub_core::{Answer, Approve, Record, Request};
use vk_hub_proto::client::{CancelMode, ErrorCode, JobState};

use crate::bench::{Bench, answer, code, digest, job, reservation, result, submission};

const DAY: Duration = Duration::from_secs(86_400);

fn again(n: u8, body: u8, fresh: u8) -> Request {
    Request::Submit {
        submission: Box::new(submission(n, None)),
        digest: digest(body),
        spec_bytes: 10,
        fresh: job(fresh),
    }
}

/// API-46, API-49
#[test]
fn a_repeated_submission_gets_the_first_answer_again_and_makes_no_second_job() {
    let (mut bench, session) = Bench::with_node(2);
    let Answer::Submitted(first) = bench.ask(again(1, 1, 1)) else {
        panic!("not made");
    };
    assert_eq!(first.state, JobState::Queued);
    assert_eq!(bench.ask(again(1, 1, 50)), Answer::Submitted(first.clone()));
    bench.job_is(session, 1, vk_hub_proto::dispatch::RunState::Accepted);
    bench.ends(session, 1, result());
    bench.settle(1);
    assert_eq!(bench.ask(again(1, 1, 51)), Answer::Submitted(first.clone()));
    bench.restart();
    assert_eq!(
        bench.ask(again(1, 1, 52)),
        Answer::Submitted(first),
        "API-73"
    );
    assert_eq!(bench.fleet.jobs().count(), 1);
}

/// API-48, ERR-13
#[test]
fn a_request_id_with_another_body_is_a_conflict() {
    let (mut bench, session) = Bench::with_node(2);
    bench.ask(again(1, 1, 1));
    assert_eq!(
        code(&bench.ask(again(1, 2, 50))),
        (409, ErrorCode::Conflict)
    );
    bench.reserve(2, 60);
    let other = Request::Reserve {
        request: vk_hub_proto::client::ReservationRequest {
            request_id: crate::bench::request_id(2),
            placement: crate::bench::placement(),
            lease_secs: 90,
            wait_secs: 0,
        },
        digest: digest(99),
        fresh: reservation(50),
    };
    let refused = bench.ask(other.clone());
    assert_eq!(code(&refused), (409, ErrorCode::Conflict), "while served");
    bench.accepts(session, reservation(2));
    let refused = bench.ask(other);
    assert_eq!(code(&refused), (409, ErrorCode::Conflict), "and after");
}

/// API-48, API-73
#[test]
fn a_conflict_names_the_job_that_is_there_so_that_its_owner_can_stop_it() {
    let mut bench = Bench::new();
    bench.ask(again(1, 1, 1));
    let named = |bench: &mut Bench| match bench.ask(again(1, 2, 50)) {
        Answer::Refused(refusal) => refusal.error.job,
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(named(&mut bench), Some(job(1)));
    bench.restart();
    assert_eq!(named(&mut bench), Some(job(1)));
    bench.ask(Request::Cancel {
        job: job(1),
        mode: CancelMode::Immediate,
    });
    bench.settle(1);
    assert_eq!(bench.fleet.jobs().count(), 1, "and makes no second");
}

/// API-58
#[test]
fn requests_are_remembered_for_each_principal_alone() {
    let mut bench = Bench::new();
    bench.ask(again(1, 1, 1));
    let Answer::Submitted(view) = bench.ask_as(2, again(1, 2, 2)) else {
        panic!("not made");
    };
    assert_eq!(view.id, job(2));
}

/// API-47, ERR-15
#[test]
fn a_repeat_whose_job_left_the_history_answers_410_until_its_day_is_over() {
    let mut bench = Bench::with(|settings| settings.job_history = 0);
    bench.ask(again(1, 1, 1));
    bench.cancel(1, CancelMode::Immediate);
    bench.settle(1);
    assert!(bench.fleet.job(job(1)).is_none());
    let refused = bench.ask(again(1, 1, 2));
    assert_eq!(code(&refused), (410, ErrorCode::NotFound));
    bench.restart();
    assert_eq!(code(&bench.ask(again(1, 1, 2))), (410, ErrorCode::NotFound));
    assert_eq!(code(&bench.ask(again(1, 2, 2))), (409, ErrorCode::Conflict));
    bench.pass(DAY + Duration::from_secs(200));
    assert!(matches!(bench.ask(again(1, 1, 2)), Answer::Submitted(_)));
}

/// ERR-26, API-60
#[test]
fn a_refused_submission_is_remembered_as_one() {
    let mut bench = Bench::with(|settings| settings.approve = Approve::Ask);
    let first = bench.ask(again(1, 1, 1));
    assert_eq!(code(&first), (403, ErrorCode::ApprovalPending));
    bench.settings.approve = Approve::All;
    bench.restart();
    assert_eq!(bench.ask(again(1, 1, 1)), first, "still the first answer");
    let refusals = bench
        .records
        .iter()
        .filter(|record| matches!(record, Record::SubmissionRefused { .. }));
    assert_eq!(refusals.count(), 1);
    bench.pass(DAY + Duration::from_secs(200));
    assert!(matches!(bench.ask(again(1, 1, 1)), Answer::Submitted(_)));
}

/// API-46
#[test]
fn a_submission_is_remembered_as_long_as_its_job_even_beyond_a_day() {
    let mut bench = Bench::with(|settings| settings.job_history = 0);
    let first = bench.ask(again(1, 1, 1));
    bench.ask(again(3, 3, 3));
    bench.cancel(3, CancelMode::Immediate);
    bench.settle(3);
    bench.pass(DAY * 3);
    assert!(
        matches!(bench.ask(again(3, 3, 4)), Answer::Submitted(_)),
        "that one is forgotten"
    );
    assert_eq!(bench.ask(again(1, 1, 2)), first);
}

#[test]
fn a_flood_of_refused_submissions_is_not_remembered_without_bound() {
    let mut bench = Bench::with(|settings| {
        settings.approve = Approve::Ask;
        settings.remembered_requests = 3;
    });
    for n in 1..6 {
        bench.ask(again(n, n, n));
    }
    bench.pass_secs(1);
    let forgotten = |record: &&Record| matches!(record, Record::RequestForgotten { .. });
    assert_eq!(bench.records.iter().filter(forgotten).count(), 2);
    bench.settings.approve = Approve::All;
    bench.restart();
    assert!(matches!(bench.ask(again(1, 1, 1)), Answer::Submitted(_)));
    let newest = bench.ask(again(5, 5, 5));
    assert_eq!(code(&newest), (403, ErrorCode::ApprovalPending));
}

/// API-46, API-60
#[test]
fn a_repeated_reservation_gets_its_grant_again_and_a_failed_one_is_tried_anew() {
    let (mut bench, session) = Bench::with_node(1);
    let grant = bench.reserved(session, 7);
    let again = bench.ask(Bench::reserve_request(7, 60));
    assert_eq!(again, Answer::Granted(grant));
    let (to, _) = bench.reserve(8, 0);
    let effects = bench.step(vk_hub_core::Input::Timeout);
    let refused = answer(&effects, to).expect("an answer");
    assert_eq!(code(&refused), (503, ErrorCode::NoCapacity));
    bench.stay(session, 3);
    bench.beat(session, 5);
    let (to, effects) = bench.reserve(8, 0);
    assert_eq!(answer(&effects, to), None, "asked again, not refused again");
    assert_eq!(effects, [crate::bench::offer(session, reservation(8))]);
}

/// API-59, ERR-28
#[test]
fn a_repeat_of_a_reservation_still_being_served_is_unavailable() {
    let (mut bench, session) = Bench::with_node(1);
    let (first, _) = bench.reserve(7, 60);
    let refused = bench.ask(Bench::reserve_request(7, 60));
    assert_eq!(code(&refused), (503, ErrorCode::Unavailable));
    let Answer::Refused(refusal) = refused else {
        panic!("not refused");
    };
    assert_eq!(refusal.error.retry_after_secs, Some(1));
    let effects = bench.accepts(session, reservation(7));
    assert!(answer(&effects, first).is_some());
}

/// API-73
#[test]
fn a_reservations_answer_dies_with_the_hubs_memory() {
    let (mut bench, session) = Bench::with_node(1);
    bench.reserved(session, 7);
    bench.restart();
    let session = bench.connect(1, 1);
    let (_, effects) = bench.reserve(7, 60);
    assert_eq!(effects, [crate::bench::offer(session, reservation(7))]);
}
