//! What a node takes up again from its records.

use vk_hub_proto::dispatch::NodeJobMessage;
use vk_hub_proto::job::FailureClass;

use super::*;
use crate::io::{ClosingLine, DeadEnd};

/// FAIL-34
#[test]
fn a_restart_leaves_jobs_running_and_finds_them_before_it_says_what_it_holds() {
    let mut node = Node::connected();
    node.run(1);
    node.run(2);
    let effects = node.restart();
    let attach = |n| Effect::Attach { job: id(n) };
    assert_eq!(effects, [attach(1), attach(2)]);
    let effects = node.connect();
    assert!(matches!(effects[..], [Effect::SendReport { .. }]));
    let effects = node.job(1, JobEvent::Alive { output_len: 50 });
    assert_eq!(effects, [Effect::Grant { job: id(1) }]);
    let effects = node.job(2, JobEvent::Alive { output_len: 7 });
    let [NodeJobMessage::Held { jobs, .. }] = &sent(&effects)[..] else {
        panic!("{effects:?}");
    };
    let lens: Vec<_> = jobs.iter().map(|job| job.output_len).collect();
    assert_eq!(lens, [50, 7]);
    let effects = node.ack(1, 20);
    assert_eq!(chunks(&effects, 1), [(20, 30)]);
}

/// DISP-41, FLOW-16
#[test]
fn a_job_whose_process_never_began_is_started_by_the_next_life() {
    let mut node = Node::connected();
    node.start(1, None, 1024, 1024);
    node.restart();
    let effects = node.job(1, JobEvent::NotStarted);
    assert!(spawns(&effects, 1));
    // Asked twice it is not started twice.
    assert_eq!(node.job(1, JobEvent::NotStarted), []);
}

/// FAIL-32, FAIL-34
#[test]
fn a_job_whose_process_died_is_cleaned_up_and_ends_interrupted() {
    let mut node = Node::connected();
    node.run(1);
    node.job(1, JobEvent::Output { len: 100 });
    let by = By::Signal { signal: 11 };
    let death = Death {
        by,
        ..Death::default()
    };
    let effects = node.job(
        1,
        JobEvent::Ended {
            output_len: 120,
            death,
        },
    );
    assert_eq!(effects[0], Effect::CleanUp { job: id(1) });
    assert_eq!(chunks(&effects, 1), [(100, 20)]);
    // What it had is not given away before nothing of it is left running.
    assert_eq!(node.core.admission().committed_mib, 1024);
    let line = ClosingLine {
        own_len: 120,
        at: 120,
        end: DeadEnd::Died { death },
    };
    let close = [Effect::CloseOutput { job: id(1), line }];
    assert_eq!(node.job(1, JobEvent::CleanedUp), close);
    assert_eq!(node.core.admission().committed_mib, 0);
    // The next life knows it too, though nobody could see it now.
    assert_eq!(node.restart(), close);
    node.connect();
    node.ack(1, 120);
    let effects = node.job(1, JobEvent::OutputClosed { len: 160 });
    assert_eq!(chunks(&effects, 1), [(120, 40)]);
    let effects = node.ack(1, 160);
    let [NodeJobMessage::Result { result, .. }] = &sent(&effects)[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(result.failure, Some(FailureClass::Interrupted));
    assert_eq!(
        result.message.as_deref(),
        Some(
            "the job's process on its node ended without a result: it was killed by signal 11 \
             (SIGSEGV)"
        )
    );
    assert_eq!(result.output_len, 160);
}

/// FAIL-32
#[test]
fn cleaning_up_ends_after_five_minutes_at_most() {
    let mut node = Node::connected();
    node.run(1);
    node.job(1, ended(0));
    assert_eq!(node.wait(299), []);
    let effects = node.wait(1);
    assert!(matches!(effects[..], [Effect::CloseOutput { .. }]));
    assert_eq!(node.job(1, JobEvent::CleanedUp), []);
}

#[test]
fn after_a_host_crash_the_output_goes_on_at_the_larger_of_both_lengths() {
    for (own_len, hub_has, at) in [(60, 100, 100), (100, 60, 100), (0, 0, 0)] {
        let mut node = Node::connected();
        node.run(1);
        node.restart();
        node.job(1, ended(own_len));
        assert_eq!(node.job(1, JobEvent::CleanedUp), []);
        node.connect();
        let effects = node.ack(1, hub_has);
        let line = ClosingLine {
            own_len,
            at,
            end: DeadEnd::Died {
                death: Death::default(),
            },
        };
        assert_eq!(effects[0], Effect::CloseOutput { job: id(1), line });
        let effects = node.job(1, JobEvent::OutputClosed { len: at + 30 });
        let last = chunks(&effects, 1).last().copied();
        assert_eq!(last.map(|(offset, len)| offset + len), Some(at + 30));
        // No byte that the host lost is sent.
        let lost = |(offset, _): &(u64, u64)| *offset >= hub_has;
        assert!(chunks(&effects, 1).iter().all(lost));
    }
}

#[test]
fn a_dead_job_that_the_hub_gave_up_needs_no_last_line() {
    let mut node = Node::connected();
    node.run(1);
    node.restart();
    node.job(1, ended(10));
    node.job(1, JobEvent::CleanedUp);
    node.connect();
    let effects = node.cancel(1, CancelMode::Immediate);
    let answers = sent(&effects);
    let [.., NodeJobMessage::Result { result, .. }] = &answers[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(result.failure, Some(FailureClass::Interrupted));
}

#[test]
fn records_that_cannot_follow_one_another_are_named() {
    let mut node = Node::connected();
    node.run(1);
    node.job(1, JobEvent::Result(done(0)));
    let [started, finished] = &node.kept[..] else {
        panic!("{:?}", node.kept);
    };
    let open = |records: &[&Record]| {
        let records: Vec<_> = records.iter().map(|record| (*record).clone()).collect();
        NodeCore::open(config(), Now::ZERO, records).map(|_| ())
    };
    let recorded = Record::Recorded { job: id(1) };
    let dropped = Record::Dropped { job: id(1) };
    let granted = Record::Granted { job: id(1) };
    assert_eq!(open(&[started, finished, &recorded, &dropped]), Ok(()));
    for (records, at) in [
        (vec![started, started], 1),
        (vec![finished], 0),
        (vec![started, finished, finished], 2),
        (vec![started, &recorded], 1),
        (vec![started, &dropped], 1),
        (vec![started, finished, &granted], 2),
        (vec![&granted], 0),
    ] {
        assert_eq!(open(&records).unwrap_err().at, at, "{records:?}");
    }
}

/// CRED-15, REG-03
#[test]
fn secrets_that_outlived_a_crash_are_dropped_by_the_next_life() {
    let mut node = Node::connected();
    node.run(1);
    node.job(1, JobEvent::Result(done(0)));
    assert_eq!(node.restart(), [Effect::DropSecrets { job: id(1) }]);
}

/// FAIL-22
#[test]
fn a_job_that_ends_while_the_hub_is_away_waits_without_a_deadline() {
    let mut node = Node::connected();
    node.run(1);
    node.give(Input::SessionLost);
    let effects = node.job(1, JobEvent::Result(done(0)));
    assert_eq!(effects, [Effect::DropSecrets { job: id(1) }]);
    assert_eq!(node.core.next_deadline(), None);
}

/// ADM-34
#[test]
fn a_job_that_no_longer_fits_after_a_restart_is_told_at_once() {
    let mut node = Node::connected();
    node.offer(1, 12000, 600);
    node.offer(3, 4000, 600);
    node.start(2, Some(1), 12000, 12500);
    assert_eq!(node.core.admission().waiting, 1);
    node.config.budgets.mem_mib = Some(8192);
    node.restart();
    let effects = node.job(2, JobEvent::Alive { output_len: 0 });
    assert!(matches!(effects[..], [Effect::Deny { .. }]), "{effects:?}");
}

#[test]
fn a_directory_removed_while_the_journal_failed_is_removed_again_later() {
    let mut node = Node::connected();
    node.run(1);
    node.job(1, JobEvent::Result(done(0)));
    node.hub(HubJobMessage::Recorded { job: id(1) });
    let why = "disk full".to_owned();
    node.give(Input::StoreFailed { why });
    assert_eq!(node.job(1, JobEvent::Removed), []);
    let effects = node.give(Input::StoreWorks);
    assert!(effects.contains(&Effect::Remove { job: id(1) }));
    node.job(1, JobEvent::Removed);
    assert_eq!(node.kept.last(), Some(&Record::Dropped { job: id(1) }));
}
