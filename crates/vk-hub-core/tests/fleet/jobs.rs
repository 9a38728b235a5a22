//! Jobs: submitted, placed, started, refused, ended.

use std::time::Duration;

use vk_hub_core::{Answer, Effect, Input, Request};
use vk_hub_proto::client::{CancelMode, ErrorCode, JobState, JobSubmission};
use vk_hub_proto::dispatch::{RefusalReason, RunState};
use vk_hub_proto::job::{FailureClass, JobResult, JobSpec, JobUsage};
use vk_hub_proto::limit::SPEC_BYTES;

use crate::bench::{
    Bench, answer, code, digest, give_back, job, node, recorded, refused, relay, reservation,
    result, stage, start, submission,
};

/// FLOW-15, API-27, API-34, FLOW-19
#[test]
fn a_job_goes_from_reservation_to_result() {
    let (mut bench, session) = Bench::with_node(2);
    let grant = bench.reserved(session, 7);
    let on = Some(grant.reservation);
    let effects = bench.submit(1, on);
    assert!(effects.contains(&start(session, 1, on)), "{effects:?}");
    assert_eq!(bench.view(1).state, JobState::Starting);
    assert_eq!(bench.view(1).node, Some(node(1)));
    bench.job_is(session, 1, RunState::Accepted);
    assert_eq!(bench.view(1).state, JobState::Running);
    bench.job_is(session, 1, stage("step_script"));
    assert_eq!(bench.view(1).stage.as_deref(), Some("step_script"));
    bench.writes(session, 1, 0, 12);
    bench.synced(1, 12);
    bench.job_is(session, 1, RunState::Finished);
    let ended = JobResult {
        output_len: 12,
        usage: Some(JobUsage {
            wall_ms: 5,
            ..Default::default()
        }),
        ..result()
    };
    let effects = bench.ends(session, 1, ended.clone());
    assert_eq!(effects, [recorded(session, 1)]);
    let view = bench.view(1);
    assert_eq!((view.state, view.output_len), (JobState::Finished, 12));
    assert_eq!(view.result, Some(ended));
    assert_eq!(bench.fleet.unfinished(), 0);
}

/// API-14, API-35, API-72
#[test]
fn the_revision_moves_with_every_change_but_the_outputs_length() {
    let (mut bench, session) = Bench::with_node(2);
    let mut seen = Vec::new();
    bench.submit(1, None);
    seen.push(bench.view(1).revision);
    bench.job_is(session, 1, RunState::Accepted);
    seen.push(bench.view(1).revision);
    bench.job_is(session, 1, stage("prepare_executor"));
    seen.push(bench.view(1).revision);
    bench.cancel(1, CancelMode::Graceful);
    seen.push(bench.view(1).revision);
    let before = bench.view(1).revision;
    bench.writes(session, 1, 0, 5);
    bench.synced(1, 5);
    bench.job_is(session, 1, stage("prepare_executor"));
    assert_eq!(bench.view(1).revision, before, "nothing but output");
    bench.ends(session, 1, result());
    seen.push(bench.view(1).revision);
    bench.settle(1);
    seen.push(bench.view(1).revision);
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
}

/// API-14, API-16, API-69
#[test]
fn a_view_poll_wakes_with_its_job_alone_and_else_answers_the_same_view() {
    let (mut bench, session) = Bench::with_node(3);
    bench.running(session, 1);
    bench.running(session, 2);
    let (poll, effects) = bench.watch(1, bench.view(1).revision, 60);
    assert_eq!(effects, []);
    assert_eq!(bench.job_is(session, 2, stage("a")), []);
    let effects = bench.job_is(session, 1, stage("b"));
    let Some(Answer::View(view)) = answer(&effects, poll) else {
        panic!("not woken: {effects:?}");
    };
    assert_eq!(view, bench.view(1));
    let (poll, _) = bench.watch(1, view.revision, 10);
    assert_eq!(answer(&bench.stay(session, 9), poll), None);
    let effects = bench.stay(session, 1);
    assert_eq!(answer(&effects, poll), Some(Answer::View(view.clone())));
    let (to, effects) = bench.watch(1, view.revision - 1, 60);
    assert!(answer(&effects, to).is_some(), "it has passed already");
}

/// API-14, API-16
#[test]
fn a_poll_for_turns_is_held_through_stages_and_ends_with_what_decides_the_job() {
    let (mut bench, session) = Bench::with_node(2);
    let turn = |bench: &mut Bench, after: u64, wait_secs: u32| {
        let request = Request::Turn {
            job: job(1),
            after: Some(after),
            wait_secs,
        };
        bench.send(relay(1), request)
    };
    let told = |effects: &[Effect], poll| match answer(effects, poll) {
        Some(Answer::View(view)) => Some(view),
        None => None,
        other => panic!("{other:?}"),
    };
    bench.submit(1, None);
    let first = bench.view(1).revision - 1;
    let (poll, effects) = turn(&mut bench, first, 60);
    assert_eq!(
        told(&effects, poll),
        None,
        "that it is sent to a node is no turn"
    );
    let effects = bench.job_is(session, 1, RunState::Accepted);
    let running = told(&effects, poll).expect("a node took it");
    assert_eq!(running.state, JobState::Running);

    let (poll, effects) = turn(&mut bench, running.revision, 60);
    assert_eq!(effects, []);
    for name in ["prepare_executor", "get_sources", "step_script"] {
        let effects = bench.job_is(session, 1, stage(name));
        assert_eq!(told(&effects, poll), None, "{name}");
    }
    let (_, effects) = bench.cancel(1, CancelMode::Graceful);
    let stopping = told(&effects, poll).expect("its cancel changed");
    assert_eq!(stopping, bench.view(1));
    let effects = bench.job_is(session, 1, stage("after_script"));
    let (poll, now) = turn(&mut bench, stopping.revision, 10);
    assert_eq!((told(&now, poll), told(&effects, poll)), (None, None));
    let effects = bench.stay(session, 10);
    assert_eq!(
        told(&effects, poll),
        Some(bench.view(1)),
        "its time is over"
    );

    let known = bench.view(1).revision;
    let (poll, _) = turn(&mut bench, known, 60);
    let effects = bench.ends(session, 1, result());
    let ended = told(&effects, poll).expect("it ended");
    assert_eq!(ended.state, JobState::Finished);
    let (poll, effects) = turn(&mut bench, running.revision, 60);
    assert_eq!(told(&effects, poll), Some(ended.clone()), "it was before");
    bench.restart();
    let (poll, effects) = turn(&mut bench, ended.revision, 60);
    assert!(
        told(&effects, poll).is_some(),
        "a hub that began anew says so"
    );
}

/// API-29, FAIL-01, FAIL-02
#[test]
fn a_refused_start_is_placed_again_elsewhere() {
    let (mut bench, first) = Bench::with_node(9);
    bench.add_node(2);
    let second = bench.connect(2, 8);
    let effects = bench.submit(1, None);
    assert!(effects.contains(&start(first, 1, None)));
    let effects = bench.job_is(first, 1, refused(RefusalReason::Memory));
    assert!(effects.contains(&start(second, 1, None)), "{effects:?}");
    assert_eq!(bench.view(1).node, Some(node(2)));
    bench.job_is(second, 1, RunState::Accepted);
    assert_eq!(
        bench.job_is(first, 1, RunState::Accepted),
        [],
        "the other node has no say"
    );
}

/// API-28, API-30
#[test]
fn a_start_without_answer_is_not_placed_a_second_time() {
    let (mut bench, first) = Bench::with_node(9);
    bench.add_node(2);
    let second = bench.connect(2, 8);
    let effects = bench.submit(1, None);
    assert!(effects.contains(&start(first, 1, None)));
    for _ in 0..100 {
        bench.step(Input::Alive { session: second });
        let effects = bench.stay(first, 5);
        let started = effects
            .iter()
            .any(|effect| matches!(effect, Effect::Start { .. }));
        assert!(!started, "{effects:?}");
    }
    assert_eq!(bench.view(1).state, JobState::Starting);
}

/// API-28, ADM-20, FAIL-03
#[test]
fn a_job_whose_reservation_is_gone_is_placed_afresh() {
    let (mut bench, session) = Bench::with_node(2);
    let unknown = bench.submit(1, Some(reservation(99)));
    assert!(unknown.contains(&start(session, 1, None)), "{unknown:?}");
    bench.reserved(session, 7);
    bench.ask(Request::Release {
        reservation: reservation(7),
    });
    let released = bench.submit(2, Some(reservation(7)));
    assert!(!released.contains(&start(session, 2, Some(reservation(7)))));
}

/// DISP-84, ADM-20
#[test]
fn a_job_submitted_while_its_reservations_node_is_out_of_touch_is_placed_afresh() {
    let (mut bench, session) = Bench::with_node(2);
    bench.add_node(2);
    bench.reserved(session, 7);
    bench.close(session);
    let other = bench.connect(2, 1);
    let effects = bench.submit(1, Some(reservation(7)));
    assert!(effects.contains(&start(other, 1, None)), "{effects:?}");
    let session = bench.greet(1, 2);
    let held = vec![crate::bench::held_reservation(reservation(7), 50)];
    assert_eq!(
        bench.held(session, held, vec![]),
        [give_back(session, reservation(7))]
    );
}

/// API-74
#[test]
fn anothers_live_reservation_is_not_found() {
    let (mut bench, session) = Bench::with_node(2);
    bench.reserved(session, 7);
    let request = Bench::submit_request(1, submission(1, Some(reservation(7))));
    let refused = bench.ask_as(2, request);
    assert_eq!(code(&refused), (404, ErrorCode::NotFound));
    assert!(bench.fleet.job(job(1)).is_none());
}

/// ADM-22
#[test]
fn a_job_not_placed_in_time_ends_no_capacity() {
    let (mut bench, session) = Bench::with_node(0);
    bench.submit(1, None);
    bench.stay(session, 299);
    assert_eq!(bench.view(1).state, JobState::Queued);
    bench.stay(session, 1);
    assert_eq!(bench.failure(1), Some(FailureClass::NoCapacity));
}

/// ADM-22, API-56
#[test]
fn a_placing_time_of_0_takes_a_node_now_or_none() {
    let (mut bench, session) = Bench::with_node(1);
    let now = |n| {
        let submission = JobSubmission {
            place_within_secs: 0,
            ..submission(n, None)
        };
        Bench::submit_request(n, submission)
    };
    let (_, effects) = bench.send(relay(1), now(1));
    assert!(effects.contains(&start(session, 1, None)));
    bench.send(relay(1), now(2));
    bench.step(Input::Timeout);
    assert_eq!(bench.failure(2), Some(FailureClass::NoCapacity));
    bench.job_is(session, 1, refused(RefusalReason::Concurrency));
    assert_eq!(bench.failure(1), Some(FailureClass::NoCapacity));
    let message = bench.view(1).result.unwrap().message.unwrap();
    assert!(message.contains("its own limit is reached"), "{message}");
}

/// ADM-22
#[test]
fn a_start_refused_after_the_placing_time_is_not_placed_again() {
    let (mut bench, session) = Bench::with_node(2);
    bench.submit(1, None);
    bench.stay(session, 301);
    assert_eq!(bench.view(1).state, JobState::Starting, "it may run");
    bench.job_is(session, 1, refused(RefusalReason::Memory));
    assert_eq!(bench.failure(1), Some(FailureClass::NoCapacity));
}

/// API-29
#[test]
fn a_reservation_of_a_refused_start_is_given_back() {
    let (mut bench, session) = Bench::with_node(1);
    bench.reserved(session, 7);
    bench.submit(1, Some(reservation(7)));
    let effects = bench.job_is(session, 1, refused(RefusalReason::Policy));
    assert!(effects.contains(&give_back(session, reservation(7))));
    assert_eq!(bench.fleet.reservations().count(), 0);
    assert_eq!(bench.view(1).state, JobState::Queued);
    let effects = bench.pass(Duration::from_secs(2));
    assert!(effects.contains(&start(session, 1, None)), "{effects:?}");
}

/// DISP-78
#[test]
fn any_result_is_answered_recorded_and_only_that_of_the_jobs_node_counts() {
    let (mut bench, session) = Bench::with_node(2);
    bench.add_node(2);
    let other = bench.connect(2, 0);
    bench.running(session, 1);
    assert_eq!(bench.ends(other, 1, result()), [recorded(other, 1)]);
    assert_eq!(bench.view(1).state, JobState::Running);
    assert_eq!(bench.ends(session, 99, result()), [recorded(session, 99)]);
    let failed = JobResult {
        failure: Some(FailureClass::Script),
        exit_code: Some(3),
        ..result()
    };
    bench.ends(session, 1, failed);
    assert_eq!(bench.ends(session, 1, result()), [recorded(session, 1)]);
    assert_eq!(bench.failure(1), Some(FailureClass::Script), "the first");
}

/// ERR-12
#[test]
fn jobs_are_their_owners_alone() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    let requests = [
        Request::View {
            job: job(1),
            after: None,
            wait_secs: 60,
        },
        Request::Output {
            job: job(1),
            offset: 0,
            wait_secs: 60,
        },
        Request::Cancel {
            job: job(1),
            mode: CancelMode::Immediate,
        },
        Request::Settle { job: job(1) },
    ];
    for request in requests {
        let refused = bench.ask_as(2, request.clone());
        assert_eq!(code(&refused), (404, ErrorCode::NotFound), "{request:?}");
    }
    assert_eq!(bench.view(1).cancel, None);
    let unknown = Request::View {
        job: job(9),
        after: None,
        wait_secs: 0,
    };
    assert_eq!(code(&bench.ask(unknown)), (404, ErrorCode::NotFound));
}

fn with_info(change: impl FnOnce(&mut vk_hub_proto::job::CiJobInfo)) -> JobSubmission {
    let mut submission = submission(1, None);
    let JobSpec::GitlabCi(ci) = &mut submission.spec;
    change(&mut ci.job);
    submission
}

/// ERR-05, API-56, PLACE-42
#[test]
fn a_submission_that_makes_no_sense_is_invalid() {
    let mut bench = Bench::new();
    let mut many = submission(1, None);
    many.placement.labels = vec!["a".parse().unwrap(); 33];
    let long = JobSubmission {
        place_within_secs: 86_401,
        ..submission(1, None)
    };
    for bad in [
        with_info(|info| info.project_path.clear()),
        with_info(|info| info.project_id = 0),
        with_info(|info| info.id = 0),
        many,
        long,
    ] {
        let refused = bench.ask(Bench::submit_request(1, bad));
        assert_eq!(code(&refused), (400, ErrorCode::Invalid));
    }
    assert_eq!(bench.records, [], "nothing is remembered");
}

/// API-31, ERR-16
#[test]
fn a_spec_over_512_kib_is_too_large() {
    let mut bench = Bench::new();
    let sized = |spec_bytes| Request::Submit {
        submission: Box::new(submission(1, None)),
        digest: digest(1),
        spec_bytes,
        fresh: job(1),
    };
    let refused = bench.ask(sized(SPEC_BYTES + 1));
    assert_eq!(code(&refused), (413, ErrorCode::TooLarge));
    assert!(matches!(bench.ask(sized(SPEC_BYTES)), Answer::Submitted(_)));
}

/// PLACE-07
#[test]
fn a_relays_placement_is_taken_as_it_is() {
    let mut bench = Bench::new();
    let mut request = submission(1, None);
    request.placement.pool = "nobody-made-this-pool".parse().unwrap();
    request.placement.envelope.mem_mib = u64::MAX;
    request.placement.envelope.cpus = u32::MAX;
    request.placement.envelope.disk_bytes = u64::MAX;
    let made = bench.ask(Bench::submit_request(1, request));
    assert!(matches!(made, Answer::Submitted(_)));
}

/// API-68
#[test]
fn a_hub_with_as_many_jobs_as_it_takes_is_unavailable() {
    let mut bench = Bench::with(|settings| settings.unfinished_jobs = 1);
    bench.submit(1, None);
    let request = Bench::submit_request(2, submission(2, None));
    let refused = bench.ask(request.clone());
    assert_eq!(code(&refused), (503, ErrorCode::Unavailable));
    bench.cancel(1, CancelMode::Immediate);
    assert!(matches!(bench.ask(request), Answer::Submitted(_)));
}

#[test]
fn a_node_that_says_it_does_not_hold_a_running_job_has_lost_it() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.job_is(session, 1, refused(RefusalReason::Invalid));
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
}

#[test]
fn what_a_node_tells_is_cut_to_what_the_hub_keeps() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.job_is(session, 1, stage("get\u{1b}[31m_sources"));
    assert_eq!(bench.view(1).stage.as_deref(), Some("get[31m_sources"));
    let told = JobResult {
        message: Some("x".repeat(100_000)),
        artifacts: vec![
            vk_hub_proto::job::ArtifactOutcome {
                name: "n".repeat(9_000),
                artifact_type: "archive".to_owned(),
                state: vk_hub_proto::job::ArtifactState::Uploaded,
            };
            9_000
        ],
        ..result()
    };
    bench.ends(session, 1, told);
    let kept = bench.view(1).result.unwrap();
    assert_eq!(kept.message.unwrap().len(), 4_096);
    assert_eq!(kept.artifacts.len(), 1_024);
    assert!(kept.artifacts.iter().all(|one| one.name.len() <= 256));
}

/// FAIL-37
#[test]
fn a_job_well_past_its_timeout_is_ended_and_its_node_told() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    let grace = bench.settings.overdue_grace.as_secs();
    bench.stay(session, 3_600 + grace - 1 + 60);
    assert_eq!(bench.view(1).state, JobState::Running);
    let effects = bench.stay(session, 1);
    let told = crate::bench::stop(session, 1, CancelMode::Immediate);
    assert!(effects.contains(&told), "{effects:?}");
    assert_eq!(bench.failure(1), Some(FailureClass::Timeout));
    let placed = |bench: &Bench| bench.fleet.nodes().next().unwrap().placed;
    assert_eq!(placed(&bench), 1, "it may still run there");
    assert_eq!(bench.ends(session, 1, result()), [recorded(session, 1)]);
    assert_eq!(placed(&bench), 0);
}

fn short(n: u8) -> Request {
    let mut submission = submission(n, None);
    submission.place_within_secs = 86_400;
    let JobSpec::GitlabCi(ci) = &mut submission.spec;
    ci.timeout_secs = 60;
    Bench::submit_request(n, submission)
}

/// FAIL-37
#[test]
fn only_time_on_a_node_makes_a_job_overdue_and_it_begins_with_the_acceptance() {
    let (mut bench, session) = Bench::with_node(2);
    let allowed = 60 + bench.settings.overdue_grace.as_secs();
    bench.stay(session, 60);
    bench.send(relay(1), short(1));
    bench.job_is(session, 1, refused(RefusalReason::Memory));
    bench.beat(session, 0);
    bench.stay(session, allowed + 10);
    assert_eq!(bench.view(1).state, JobState::Queued);
    bench.beat(session, 1);
    bench.stay(session, allowed - 10);
    bench.job_is(session, 1, RunState::Accepted);
    bench.stay(session, allowed - 10);
    assert_eq!(bench.view(1).state, JobState::Running);
    bench.ends(session, 1, result());
    bench.stay(session, 20);
    assert_eq!(bench.failure(1), None);
}
