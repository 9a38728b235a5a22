//! Which starts are taken, and once.

use vk_hub_proto::dispatch::{GuestSize, NodeJobMessage};

use super::*;

/// DISP-41, FLOW-16
#[test]
fn a_redelivered_start_is_answered_from_the_journal() {
    let mut node = Node::connected();
    let effects = node.start(1, None, 1024, 1024);
    assert_eq!(node.kept.len(), 1);
    assert!(spawns(&effects, 1));
    let again = node.start(1, None, 1024, 1024);
    assert_eq!(again, sent_only(&again));
    assert_eq!(sent(&again), [state(1, RunState::Accepted)]);

    node.job(1, JobEvent::Alive { output_len: 0 });
    let stage = JobEvent::Stage {
        stage: "get_sources".to_owned(),
        activity: None,
    };
    node.job(1, stage);
    let running = RunState::Running {
        stage: "get_sources".to_owned(),
        activity: None,
        guest: None,
    };
    let again = node.start(1, None, 1024, 1024);
    assert_eq!(sent(&again), [state(1, running)]);

    // After a restart of the node and a new session, too.
    node.restart();
    node.job(1, JobEvent::Alive { output_len: 0 });
    node.connect();
    let again = node.start(1, None, 1024, 1024);
    assert!(!spawns(&again, 1));
    assert_eq!(node.kept.len(), 1);
}

/// DISP-41
#[test]
fn a_job_that_ran_here_before_does_not_run_again() {
    let mut node = Node::connected();
    node.run(1);
    node.job(1, JobEvent::Result(done(0)));
    node.hub(HubJobMessage::Recorded { job: id(1) });
    for gone in [false, true] {
        if gone {
            node.job(1, JobEvent::Removed);
        }
        let again = node.start(1, None, 1024, 1024);
        let [finished, NodeJobMessage::Result { job, .. }] = &sent(&again)[..] else {
            panic!("{again:?}");
        };
        assert_eq!((finished, *job), (&state(1, RunState::Finished), id(1)));
        assert_eq!(again, sent_only(&again));
    }
}

fn sent_only(effects: &[Effect]) -> Vec<Effect> {
    let send = |effect: &&Effect| matches!(effect, Effect::Send { .. });
    effects.iter().filter(send).cloned().collect()
}

/// DISP-81
#[test]
fn a_start_that_makes_no_sense_is_invalid_and_leaves_its_reservation() {
    let mut node = Node::connected();
    node.offer(1, 1024, 90);
    let mut start = |change: &dyn Fn(&mut CiJob), spec_bytes: usize| {
        let mut job = spec(1, 1024);
        change(&mut job);
        let effects = node.give(Input::Hub {
            message: Box::new(HubJobMessage::Start {
                job: id(1),
                reservation: Some(res(1)),
                envelope: envelope(1024),
                spec: JobSpec::GitlabCi(Box::new(job)),
                registry: None,
            }),
            start: StartFacts {
                spec_bytes,
                history_mib: None,
            },
        });
        assert_eq!(refused(&effects, 1), RefusalReason::Invalid);
    };
    start(&|_| {}, 524_289);
    start(&|job| job.job.id = 0, 100);
    for path in [
        "", "/", "a/../b", "a/./b", "/a/b", "a//b", "a/b/", "a/b c", "ä/b",
    ] {
        start(&|job| path.clone_into(&mut job.job.project_path), 100);
    }
    assert_eq!(node.kept, []);
    assert_eq!(node.core.admission().running, 1);
    let effects = node.start(1, Some(1), 1024, 1024);
    assert!(spawns(&effects, 1));
}

#[test]
fn a_spec_of_exactly_512_kib_is_taken() {
    let mut node = Node::connected();
    let effects = node.give(Input::Hub {
        message: Box::new(HubJobMessage::Start {
            job: id(1),
            reservation: None,
            envelope: envelope(1024),
            spec: JobSpec::GitlabCi(Box::new(spec(1, 1024))),
            registry: None,
        }),
        start: StartFacts {
            spec_bytes: 524_288,
            history_mib: None,
        },
    });
    assert!(spawns(&effects, 1));
}

#[test]
fn slots_are_the_lowest_free_numbers_and_survive_a_restart() {
    let mut node = Node::connected();
    let slots = |effects: &[Effect]| match effects.last() {
        Some(Effect::Spawn { plan, .. }) => (plan.slot, plan.project_slot),
        other => panic!("{other:?}"),
    };
    assert_eq!(slots(&node.start(1, None, 1024, 1024)), (0, 0));
    assert_eq!(slots(&node.start(2, None, 1024, 1024)), (1, 1));
    node.job(1, JobEvent::Alive { output_len: 0 });
    node.job(1, JobEvent::Result(done(0)));
    assert_eq!(slots(&node.start(3, None, 1024, 1024)), (0, 0));
    node.restart();
    for n in [2, 3] {
        node.job(n, JobEvent::Alive { output_len: 0 });
    }
    node.connect();
    assert_eq!(slots(&node.start(4, None, 1024, 1024)), (2, 2));
}

/// DISP-23
#[test]
fn the_vms_size_is_told_once_it_is_known() {
    let mut node = Node::connected();
    node.run(1);
    let stage = |activity: Option<&str>| JobEvent::Stage {
        stage: "prepare_executor".to_owned(),
        activity: activity.map(str::to_owned),
    };
    let running = |activity: Option<&str>, guest| {
        let stage = "prepare_executor".to_owned();
        let activity = activity.map(str::to_owned);
        [state(
            1,
            RunState::Running {
                stage,
                activity,
                guest,
            },
        )]
    };
    let effects = node.job(1, stage(Some("pulling\u{1b}[2J busybox")));
    assert_eq!(sent(&effects), running(Some("pulling[2J busybox"), None));
    let guest = GuestSize {
        cpus: 1,
        mem_mib: 1024,
    };
    let effects = node.job(1, JobEvent::Guest(guest));
    assert_eq!(
        sent(&effects),
        running(Some("pulling[2J busybox"), Some(guest))
    );
    assert_eq!(node.job(1, JobEvent::Guest(guest)), []);
    let effects = node.job(1, stage(None));
    assert_eq!(sent(&effects), running(None, Some(guest)));
    assert_eq!(node.job(1, stage(None)), []);
}

#[test]
fn a_process_that_cannot_be_started_ends_its_job_system() {
    use vk_hub_proto::job::FailureClass;

    use crate::io::{ClosingLine, DeadEnd};

    let mut node = Node::connected();
    node.start(1, None, 1024, 1024);
    let why = "no such program".to_owned();
    let effects = node.job(1, JobEvent::SpawnFailed { why: why.clone() });
    let line = ClosingLine {
        own_len: 0,
        at: 0,
        end: DeadEnd::NotSpawned { why },
    };
    assert_eq!(effects, [Effect::CloseOutput { job: id(1), line }]);
    assert_eq!(node.core.admission().committed_mib, 0);
    node.job(1, JobEvent::OutputClosed { len: 40 });
    let effects = node.ack(1, 40);
    let [NodeJobMessage::Result { result, .. }] = &sent(&effects)[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(result.failure, Some(FailureClass::System));
    let message = "the job's process could not be started: no such program";
    assert_eq!(result.message.as_deref(), Some(message));
}
