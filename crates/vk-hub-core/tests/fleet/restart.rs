//! The hub killed at every record: opened from exactly the records up to it, with none of that
//! step's effects released, it must reach the right end.

use vk_hub_core::{Answer, Approve, Effect, Input, OperatorRequest, Record, SessionHandle};
use vk_hub_proto::client::{CancelMode, ErrorCode, JobState};
use vk_hub_proto::dispatch::{RefusalReason, RunState};
use vk_hub_proto::job::FailureClass;
use vk_hub_proto::node_session::RefusedCode;
use vk_hub_proto::relay_session::ServerStatus;
use vk_step::Variant;

use crate::bench::{
    Bench, ack, code, held_job, held_reservation, job, node, recorded, refused, relay_report,
    reservation, result, stop, submission,
};

/// Keeps the records up to the last of this variant, and starts the hub from them.
fn killed_at(bench: &mut Bench, variant: &str) -> Vec<Effect> {
    let last = bench
        .records
        .iter()
        .rposition(|record| record.variant() == variant)
        .unwrap_or_else(|| panic!("no {variant} in {:?}", bench.records));
    let kept = bench.records[..=last].to_vec();
    bench.restart_from(kept)
}

fn resubmit(bench: &mut Bench, n: u8) -> Answer {
    bench.ask(Bench::submit_request(n, submission(n, None)))
}

fn closed(effects: &[Effect]) -> Option<RefusedCode> {
    effects.iter().find_map(|effect| match effect {
        Effect::Close { code, .. } => Some(*code),
        _ => None,
    })
}

fn at_clock() {
    let (mut bench, _) = Bench::with_node(2);
    bench.submit(1, None);
    let place = |variant: &str| {
        let mut kept = bench.records.iter();
        kept.position(|record| record.variant() == variant)
    };
    assert!(
        place("Clock") < place("JobSubmitted"),
        "it names a revision"
    );
    let before = bench.capacity_now().revision;
    bench.wall_secs = 0;
    killed_at(&mut bench, "Clock");
    assert!(bench.capacity_now().revision > before);
}

fn at_node_pools() {
    let (mut bench, _) = Bench::with_node(2);
    killed_at(&mut bench, "NodePools");
    bench.connect(1, 3);
    assert_eq!(bench.capacity_now().fits, 3);
}

fn at_node_desired() {
    let (mut bench, _) = Bench::with_node(5);
    bench.operate(OperatorRequest::SetCeiling {
        node: node(1),
        ceiling: Some(2),
    });
    killed_at(&mut bench, "NodeDesired");
    let (_, effects) = bench.open(1, 3);
    let [Effect::Desired { desired, .. }] = effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(desired.ceiling, Some(2));
}

fn at_node_removed() {
    let (mut bench, session) = Bench::with_node(5);
    bench.running(session, 1);
    bench.operate(OperatorRequest::RemoveNode { node: node(1) });
    killed_at(&mut bench, "NodeRemoved");
    let (_, effects) = bench.open(1, 3);
    assert_eq!(closed(&effects), Some(RefusedCode::NotEnrolled));
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
}

fn at_node_silent() {
    let (mut bench, session) = Bench::with_node(5);
    bench.running(session, 1);
    bench.close(session);
    killed_at(&mut bench, "NodeSilent");
    bench.pass_secs(60 + 316);
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
}

fn at_node_heard() {
    let (mut bench, session) = Bench::with_node(5);
    bench.stay(session, 60);
    bench.running(session, 1);
    bench.close(session);
    bench.pass_secs(310);
    let session = bench.greet(1, 5);
    bench.held(session, vec![], vec![held_job(1)]);
    killed_at(&mut bench, "NodeHeard");
    bench.pass_secs(60 + 280);
    assert_eq!(bench.view(1).state, JobState::Running);
}

/// Nobody was answered: the client asks again and learns of the same job, which is lost.
fn at_job_submitted() {
    let (mut bench, session) = Bench::with_node(5);
    bench.submit(1, None);
    let Answer::Submitted(first) = resubmit(&mut bench, 1) else {
        panic!("no view");
    };
    bench.close(session);
    killed_at(&mut bench, "JobSubmitted");
    assert_eq!(resubmit(&mut bench, 1), Answer::Submitted(first));
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
    assert_eq!(bench.settle(1).0, Answer::Settled);
}

/// The start never left: the node does not name the job, and its spec is gone.
fn at_job_starting() {
    let (mut bench, _) = Bench::with_node(5);
    bench.submit(1, None);
    killed_at(&mut bench, "JobStarting");
    bench.step(Input::Timeout);
    assert_eq!(bench.view(1).state, JobState::Starting, "held decides");
    bench.connect(1, 5);
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
}

fn at_job_queued() {
    let (mut bench, session) = Bench::with_node(5);
    bench.submit(1, None);
    bench.job_is(session, 1, refused(RefusalReason::Policy));
    killed_at(&mut bench, "JobQueued");
    bench.step(Input::Timeout);
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
}

fn at_job_running() {
    let (mut bench, session) = Bench::with_node(5);
    bench.submit(1, None);
    bench.job_is(session, 1, crate::bench::stage("step_script"));
    bench.writes(session, 1, 0, 30);
    bench.synced(1, 30);
    killed_at(&mut bench, "JobRunning");
    let view = bench.view(1);
    assert_eq!((view.state, view.output_len), (JobState::Running, 30));
    assert_eq!(view.stage.as_deref(), Some("step_script"));
    let session = bench.greet(1, 5);
    let effects = bench.held(session, vec![], vec![held_job(1)]);
    assert_eq!(effects, [ack(session, 1, 30)]);
    assert_eq!(bench.ends(session, 1, result()), [recorded(session, 1)]);
}

fn at_job_cancel() {
    let (mut bench, session) = Bench::with_node(5);
    bench.running(session, 1);
    bench.cancel(1, CancelMode::Graceful);
    killed_at(&mut bench, "JobCancel");
    let session = bench.greet(1, 5);
    let effects = bench.held(session, vec![], vec![held_job(1)]);
    assert!(effects.contains(&stop(session, 1, CancelMode::Graceful)));
}

fn at_job_finished() {
    let (mut bench, session) = Bench::with_node(5);
    bench.running(session, 1);
    bench.writes(session, 1, 0, 30);
    bench.synced(1, 30);
    bench.ends(session, 1, result());
    let before = bench.view(1);
    bench.outputs.insert(job(1), 99);
    killed_at(&mut bench, "JobFinished");
    let after = bench.view(1);
    assert_eq!((after.result, after.output_len), (before.result, 30));
    let session = bench.greet(1, 5);
    let effects = bench.held(session, vec![], vec![held_job(1)]);
    assert_eq!(effects, [recorded(session, 1)]);
}

fn at_job_settled() {
    let (mut bench, session) = Bench::with_node(5);
    bench.running(session, 1);
    bench.running(session, 2);
    bench.ends(session, 1, result());
    bench.settle(1);
    let effects = killed_at(&mut bench, "JobSettled");
    assert_eq!(effects, [Effect::RetainOutputs { jobs: vec![job(2)] }]);
    assert_eq!(bench.settle(1).0, Answer::Settled);
}

fn at_job_forgotten() {
    let mut bench = Bench::with(|settings| settings.job_history = 0);
    bench.submit(1, None);
    bench.cancel(1, CancelMode::Immediate);
    bench.settle(1);
    let effects = killed_at(&mut bench, "JobForgotten");
    assert_eq!(effects, [Effect::RetainOutputs { jobs: vec![] }]);
    let refused = resubmit(&mut bench, 1);
    assert_eq!(code(&refused), (410, ErrorCode::NotFound));
}

fn at_submission_refused() {
    let mut bench = Bench::with(|settings| settings.approve = Approve::Ask);
    let first = resubmit(&mut bench, 1);
    bench.settings.approve = Approve::All;
    killed_at(&mut bench, "SubmissionRefused");
    assert_eq!(resubmit(&mut bench, 1), first);
}

/// A hub that asks, with room for so many servers and projects, and a relay that has reported.
fn asking(room: usize) -> (Bench, SessionHandle) {
    let mut bench = Bench::with(|settings| {
        settings.approve = Approve::Ask;
        (settings.servers, settings.projects) = (room, room);
    });
    let (session, _) = bench.open_relay(1);
    bench.reports(session, relay_report(1));
    (bench, session)
}

/// How the relay's server stands in a session of its own.
fn status(bench: &mut Bench, key: u8) -> Option<ServerStatus> {
    let (session, _) = bench.open_relay(1);
    bench.reports(session, relay_report(key))
}

fn at_server_known() {
    let (mut bench, _) = asking(9);
    bench.decides(1, true);
    killed_at(&mut bench, "ServerKnown");
    assert_eq!(status(&mut bench, 1), Some(ServerStatus::Approved));
}

/// The relay whose server took the place is not bound yet: it reports again.
fn at_server_dropped() {
    let (mut bench, session) = asking(2);
    bench.reports(session, relay_report(2));
    let relay = crate::bench::relay_id(1);
    bench.operate(OperatorRequest::RemoveRelay { relay });
    status(&mut bench, 3);
    killed_at(&mut bench, "ServerDropped");
    assert_eq!(status(&mut bench, 3), Some(ServerStatus::Pending));
    assert_eq!(bench.fleet.gitlab_servers().count(), 2);
}

fn at_project_known() {
    let (mut bench, _) = asking(9);
    bench.decides(1, true);
    resubmit(&mut bench, 1);
    bench.decides_project(1, true);
    killed_at(&mut bench, "ProjectKnown");
    assert!(matches!(resubmit(&mut bench, 2), Answer::Submitted(_)));
}

/// The project that took the place is listed when its next job comes.
fn at_project_dropped() {
    let (mut bench, session) = asking(1);
    bench.decides(1, true);
    resubmit(&mut bench, 1);
    bench.settings.servers = 2;
    bench.restart();
    bench.close(session);
    let (session, _) = bench.open_relay(1);
    bench.reports(session, relay_report(2));
    bench.decides(2, true);
    resubmit(&mut bench, 2);
    killed_at(&mut bench, "ProjectDropped");
    assert_eq!(bench.fleet.gitlab_projects().count(), 0);
    let refused = resubmit(&mut bench, 3);
    assert_eq!(code(&refused), (403, ErrorCode::ApprovalPending));
    assert_eq!(bench.fleet.gitlab_projects().count(), 1);
}

fn at_relay_server() {
    let (mut bench, session) = asking(9);
    bench.decides(1, true);
    bench.reports(session, relay_report(2));
    killed_at(&mut bench, "RelayServer");
    assert_eq!(code(&resubmit(&mut bench, 1)), (403, ErrorCode::Forbidden));
    assert_eq!(status(&mut bench, 2), Some(ServerStatus::Rebound));
}

fn at_relay_removed() {
    let (mut bench, session) = asking(9);
    bench.reports(session, relay_report(2));
    let relay = crate::bench::relay_id(1);
    bench.operate(OperatorRequest::RemoveRelay { relay });
    killed_at(&mut bench, "RelayRemoved");
    assert_eq!(bench.fleet.relays().count(), 0);
    assert_eq!(
        status(&mut bench, 2),
        Some(ServerStatus::Pending),
        "bound anew"
    );
}

fn at_audited() {
    let (mut bench, _) = asking(9);
    bench.decides(1, true);
    killed_at(&mut bench, "Audited");
    assert_eq!(status(&mut bench, 1), Some(ServerStatus::Approved));
}

fn at_request_forgotten() {
    let mut bench = Bench::with(|settings| settings.approve = Approve::Ask);
    resubmit(&mut bench, 1);
    bench.pass_secs(86_400 + 200);
    bench.settings.approve = Approve::All;
    killed_at(&mut bench, "RequestForgotten");
    assert!(matches!(resubmit(&mut bench, 1), Answer::Submitted(_)));
}

/// FAIL-23
#[test]
fn the_hub_opens_from_every_record_on_and_reaches_the_right_end() {
    let at: [(&str, fn()); 23] = [
        ("Clock", at_clock),
        ("NodePools", at_node_pools),
        ("NodeDesired", at_node_desired),
        ("NodeRemoved", at_node_removed),
        ("NodeSilent", at_node_silent),
        ("NodeHeard", at_node_heard),
        ("JobSubmitted", at_job_submitted),
        ("JobStarting", at_job_starting),
        ("JobQueued", at_job_queued),
        ("JobRunning", at_job_running),
        ("JobCancel", at_job_cancel),
        ("JobFinished", at_job_finished),
        ("JobSettled", at_job_settled),
        ("JobForgotten", at_job_forgotten),
        ("SubmissionRefused", at_submission_refused),
        ("ServerKnown", at_server_known),
        ("ServerDropped", at_server_dropped),
        ("ProjectKnown", at_project_known),
        ("ProjectDropped", at_project_dropped),
        ("RelayServer", at_relay_server),
        ("RelayRemoved", at_relay_removed),
        ("Audited", at_audited),
        ("RequestForgotten", at_request_forgotten),
    ];
    let names: Vec<_> = at.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, Record::ALL);
    for (_, reaches_the_right_end) in at {
        reaches_the_right_end();
    }
}

/// FAIL-31
#[test]
fn a_start_that_left_before_the_hub_died_waits_for_held_and_goes_on() {
    let (mut bench, _) = Bench::with_node(5);
    bench.submit(1, None);
    bench.submit(2, None);
    bench.restart();
    bench.pass_secs(200);
    assert_eq!(bench.view(1).state, JobState::Starting);
    let session = bench.greet(1, 5);
    let effects = bench.held(session, vec![], vec![held_job(1)]);
    assert_eq!(effects, [ack(session, 1, 0)]);
    assert_eq!(bench.view(1).state, JobState::Running);
    assert_eq!(bench.failure(2), Some(FailureClass::Lost), "never accepted");
}

/// FAIL-31, FAIL-25
#[test]
fn a_start_whose_node_never_comes_back_is_lost() {
    let (mut bench, _) = Bench::with_node(5);
    bench.submit(1, None);
    bench.restart();
    bench.pass_secs(60 + 314);
    assert_eq!(bench.view(1).state, JobState::Starting);
    bench.pass_secs(2);
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
}

/// FAIL-25
#[test]
fn jobs_no_node_had_accepted_end_lost_with_a_restart() {
    let (mut bench, _) = Bench::with_node(0);
    bench.submit(1, None);
    bench.restart();
    let (to, effects) = bench.watch(1, bench.view(1).revision, 60);
    assert_eq!(bench.failure(1), Some(FailureClass::Lost));
    let ended = Answer::View(bench.view(1));
    assert_eq!(crate::bench::answer(&effects, to), Some(ended));
}

/// FAIL-24, FAIL-26
#[test]
fn reservations_do_not_outlive_the_hub() {
    let (mut bench, session) = Bench::with_node(5);
    bench.reserved(session, 7);
    bench.restart();
    let session = bench.greet(1, 5);
    let named = vec![held_reservation(reservation(7), 60)];
    let effects = bench.held(session, named, vec![]);
    assert_eq!(effects, [crate::bench::give_back(session, reservation(7))]);
    let (to, effects) = bench.renew(reservation(7));
    let refused = crate::bench::answer(&effects, to).expect("an answer");
    assert_eq!(code(&refused), (410, ErrorCode::ReservationGone));
}

/// API-65
#[test]
fn an_after_of_the_hubs_last_life_is_answered_at_once() {
    let (mut bench, session) = Bench::with_node(5);
    bench.running(session, 1);
    let (view, capacity) = (bench.view(1).revision, bench.capacity_now().revision);
    bench.wall_secs = 0;
    bench.restart();
    let (to, effects) = bench.watch(1, view, 60);
    assert!(crate::bench::answer(&effects, to).is_some());
    let (to, effects) = bench.capacity(Some(capacity), 60);
    assert!(crate::bench::answer(&effects, to).is_some());
}

#[test]
fn a_job_that_ended_does_not_go_on() {
    let (mut bench, session) = Bench::with_node(5);
    bench.running(session, 1);
    bench.ends(session, 1, result());
    let running = bench
        .records
        .iter()
        .find(|record| record.variant() == "JobRunning")
        .cloned()
        .expect("a record");
    bench.records.push(running);
    let config = vk_hub_core::Config {
        settings: bench.settings.clone(),
        wall_secs: 0,
        outputs: Default::default(),
    };
    let last = bench.records.len() - 1;
    let records = bench.records.clone();
    let refused = <vk_hub_core::Fleet as vk_step::Core>::open(config, bench.now, records);
    assert_eq!(refused.expect_err("it had ended").at, last);
}

#[test]
fn records_that_do_not_fit_are_refused_with_the_place() {
    let (mut bench, session) = Bench::with_node(5);
    bench.running(session, 1);
    bench.job_is(session, 1, RunState::Finished);
    let config = vk_hub_core::Config {
        settings: bench.settings.clone(),
        wall_secs: 0,
        outputs: Default::default(),
    };
    let torn = bench
        .records
        .iter()
        .position(|record| record.variant() == "JobStarting")
        .map(|at| bench.records.split_off(at))
        .expect("a start");
    let refused = <vk_hub_core::Fleet as vk_step::Core>::open(config, bench.now, torn);
    let why = refused.expect_err("records without their job");
    assert_eq!(why.at, 0);
    assert!(why.to_string().contains("is not there"), "{why}");
}
