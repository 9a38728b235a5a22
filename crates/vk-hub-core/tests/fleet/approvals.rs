//! Whose submissions are taken.

use vk_hub_core::{Answer, Approve, Decision, OperatorRequest, Record, Refusal, ServerNumber};
use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::job::JobSpec;

use crate::bench::{Bench, code, relay_report, submission};

/// A hub that asks, and a relay whose server is approved.
fn approved() -> Bench {
    let mut bench = Bench::with(|settings| settings.approve = Approve::Ask);
    let (session, _) = bench.open_relay(1);
    bench.reports(session, relay_report(1));
    bench.decides(1, true);
    bench
}

fn submit(bench: &mut Bench, n: u8) -> Answer {
    bench.ask(Bench::submit_request(n, submission(n, None)))
}

fn text(answer: &Answer) -> &str {
    match answer {
        Answer::Refused(Refusal { error, .. }) => &error.error,
        other => panic!("not refused: {other:?}"),
    }
}

/// ERR-10, ERR-20
#[test]
fn a_job_of_a_relay_that_never_said_which_server_it_serves_waits_for_approval() {
    let mut bench = Bench::with(|settings| settings.approve = Approve::Ask);
    bench.add_node(1);
    bench.connect(1, 2);
    let refused = submit(&mut bench, 1);
    assert_eq!(code(&refused), (403, ErrorCode::ApprovalPending));
    assert!(text(&refused).starts_with("server https://gitlab.example.com"));
    assert_eq!(bench.fleet.jobs().count(), 0, "no job is kept");
    let kept = bench.records.last().unwrap();
    assert!(matches!(kept, Record::SubmissionRefused { .. }));
}

/// ERR-10, ERR-11
#[test]
fn a_servers_jobs_are_taken_while_it_is_approved() {
    let mut bench = Bench::with(|settings| settings.approve = Approve::Ask);
    let (session, _) = bench.open_relay(1);
    bench.reports(session, relay_report(1));
    let refused = submit(&mut bench, 1);
    assert_eq!(code(&refused), (403, ErrorCode::ApprovalPending));
    assert!(text(&refused).starts_with("server "), "{refused:?}");
    bench.decides(1, false);
    let refused = submit(&mut bench, 2);
    assert_eq!(code(&refused), (403, ErrorCode::ProjectRejected));
    assert!(text(&refused).starts_with("server "), "{refused:?}");
    let (done, _) = bench.operate(OperatorRequest::DecideServer {
        server: ServerNumber(1),
        approved: true,
        all_projects: Some(true),
    });
    assert_eq!(done, Answer::Done);
    assert!(matches!(submit(&mut bench, 3), Answer::Submitted(_)));
}

/// ERR-10, ERR-11, ERR-26
#[test]
fn a_projects_jobs_wait_until_an_operator_decides() {
    let mut bench = approved();
    let refused = submit(&mut bench, 1);
    assert_eq!(code(&refused), (403, ErrorCode::ApprovalPending));
    assert_eq!(
        text(&refused),
        "project acme/web (ID 12) is waiting for approval"
    );
    submit(&mut bench, 2);
    let listed: Vec<_> = bench.fleet.gitlab_projects().collect();
    assert_eq!(listed.len(), 1, "listed once");
    assert_eq!((listed[0].gitlab_project, listed[0].path), (12, "acme/web"));
    bench.decides_project(1, true);
    let again = submit(&mut bench, 1);
    assert_eq!(
        code(&again),
        (403, ErrorCode::ApprovalPending),
        "as answered first"
    );
    assert!(matches!(submit(&mut bench, 3), Answer::Submitted(_)));
    bench.decides_project(1, false);
    let refused = submit(&mut bench, 4);
    assert_eq!(code(&refused), (403, ErrorCode::ProjectRejected));
    assert_eq!(text(&refused), "project acme/web (ID 12) was rejected");
    bench.restart();
    let refused = submit(&mut bench, 5);
    assert_eq!(
        code(&refused),
        (403, ErrorCode::ProjectRejected),
        "it is kept"
    );
    let decision = bench.fleet.gitlab_projects().next().unwrap().decision;
    assert_eq!(decision, Decision::Rejected);
}

/// ERR-11
#[test]
fn a_project_rejected_is_refused_though_all_others_are_taken() {
    let mut bench = approved();
    submit(&mut bench, 1);
    bench.decides_project(1, false);
    bench.operate(OperatorRequest::DecideServer {
        server: ServerNumber(1),
        approved: true,
        all_projects: Some(true),
    });
    assert_eq!(
        code(&submit(&mut bench, 2)),
        (403, ErrorCode::ProjectRejected)
    );
    bench.settings.approve = Approve::All;
    bench.restart();
    assert_eq!(
        code(&submit(&mut bench, 3)),
        (403, ErrorCode::ProjectRejected)
    );
    bench.decides_project(1, true);
    assert!(matches!(submit(&mut bench, 4), Answer::Submitted(_)));
}

/// ERR-07
#[test]
fn a_job_of_another_server_than_the_relays_is_forbidden() {
    let mut bench = Bench::new();
    let (session, _) = bench.open_relay(1);
    let mut other = relay_report(1);
    other.server.url = "https://other.example.com".to_owned();
    bench.reports(session, other);
    assert_eq!(code(&submit(&mut bench, 1)), (403, ErrorCode::Forbidden));
    let mut slash = relay_report(1);
    slash.server.url.push('/');
    bench.reports(session, slash);
    bench.submit(1, None);
    let mut with_slash = submission(2, None);
    let JobSpec::GitlabCi(job) = &mut with_slash.spec;
    job.server_url.push('/');
    let made = bench.ask(Bench::submit_request(2, with_slash));
    assert!(matches!(made, Answer::Submitted(_)));
}

/// ERR-08
#[test]
fn a_job_of_a_rebound_relay_is_forbidden_and_that_is_not_remembered() {
    let mut bench = approved();
    submit(&mut bench, 1);
    bench.decides_project(1, true);
    let (session, _) = bench.open_relay(1);
    bench.reports(session, relay_report(2));
    assert_eq!(code(&submit(&mut bench, 2)), (403, ErrorCode::Forbidden));
    bench.close(session);
    bench.restart();
    assert_eq!(
        code(&submit(&mut bench, 2)),
        (403, ErrorCode::Forbidden),
        "whether or not it has a session"
    );
    bench.operate(OperatorRequest::DecideServer {
        server: ServerNumber(2),
        approved: true,
        all_projects: Some(true),
    });
    assert!(matches!(submit(&mut bench, 2), Answer::Submitted(_)));
}

/// SESS-25
#[test]
fn jobs_that_run_are_not_touched_by_what_becomes_of_their_server() {
    let (mut bench, node) = Bench::with_node(2);
    let (session, _) = bench.open_relay(1);
    bench.reports(session, relay_report(1));
    bench.running(node, 1);
    bench.decides(1, false);
    bench.reports(session, relay_report(2));
    bench.ends(node, 1, crate::bench::result());
    assert!(bench.view(1).result.is_some());
    assert_eq!(bench.settle(1).0, Answer::Settled);
}

#[test]
fn a_full_list_of_projects_lets_go_of_the_oldest_nobody_decided_of() {
    let mut bench = Bench::with(|settings| {
        settings.approve = Approve::Ask;
        settings.projects = 2;
    });
    let (session, _) = bench.open_relay(1);
    bench.reports(session, relay_report(1));
    bench.decides(1, true);
    let submit = |bench: &mut Bench, n: u8| {
        let mut one = submission(n, None);
        let JobSpec::GitlabCi(job) = &mut one.spec;
        job.job.project_id = u64::from(n);
        bench.ask(Bench::submit_request(n, one))
    };
    submit(&mut bench, 1);
    bench.decides_project(1, true);
    submit(&mut bench, 2);
    submit(&mut bench, 3);
    let listed = |bench: &Bench| -> Vec<u64> {
        let all = bench.fleet.gitlab_projects();
        all.map(|one| one.gitlab_project).collect()
    };
    assert_eq!(listed(&bench), [1, 3]);
    bench.decides_project(3, false);
    let refused = submit(&mut bench, 4);
    assert_eq!(code(&refused), (403, ErrorCode::ApprovalPending));
    assert_eq!(listed(&bench), [1, 3], "what was decided stays");
    bench.restart();
    assert_eq!(listed(&bench), [1, 3]);
}

#[test]
fn what_is_not_there_cannot_be_decided_of() {
    let mut bench = Bench::new();
    let (refused, _) = bench.operate(OperatorRequest::DecideServer {
        server: ServerNumber(7),
        approved: true,
        all_projects: None,
    });
    assert_eq!(code(&refused), (404, ErrorCode::NotFound));
    assert!(text(&refused).contains("s7"), "{refused:?}");
}
