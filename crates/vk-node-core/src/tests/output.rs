//! What of a job's output is sent, and when its result is.

use vk_hub_proto::dispatch::NodeJobMessage;

use super::*;

fn result(n: u8, result: JobResult) -> NodeJobMessage {
    NodeJobMessage::Result { job: id(n), result }
}

/// DISP-19, DISP-47
#[test]
fn at_most_4_mib_are_sent_past_the_last_ack_in_chunks_of_256_kib() {
    let mut node = Node::connected();
    node.run(1);
    let effects = node.job(1, JobEvent::Output { len: 10 * MIB });
    let sent = chunks(&effects, 1);
    assert_eq!(sent.len(), 16);
    let whole: Vec<_> = (0..16).map(|n| (n * 262_144, 262_144)).collect();
    assert_eq!(sent, whole);
    assert_eq!(node.job(1, JobEvent::Output { len: 11 * MIB }), []);
    let effects = node.ack(1, 100);
    assert_eq!(chunks(&effects, 1), [(4 * MIB, 100)]);
    let effects = node.ack(1, 100);
    assert_eq!(effects, []);
    let effects = node.ack(1, 4 * MIB + 100);
    let end = chunks(&effects, 1).last().copied().unwrap();
    assert_eq!(end.0 + end.1, 8 * MIB + 100);
}

/// DISP-49, FAIL-22
#[test]
fn after_a_reconnect_output_goes_on_where_the_hub_says() {
    let mut node = Node::connected();
    node.run(1);
    node.job(1, JobEvent::Output { len: 1000 });
    node.ack(1, 300);
    node.give(Input::SessionLost);
    // The job runs on and its output is kept.
    assert_eq!(node.job(1, JobEvent::Output { len: 2000 }), []);
    let effects = node.connect();
    assert_eq!(chunks(&effects, 1), []);
    // Nothing is sent before the hub's word, however much there is.
    assert_eq!(node.job(1, JobEvent::Output { len: 2500 }), []);
    let effects = node.ack(1, 700);
    assert_eq!(chunks(&effects, 1), [(700, 1800)]);
}

/// DISP-49
#[test]
fn a_hub_that_lost_some_of_it_is_sent_it_again() {
    let mut node = Node::connected();
    node.run(1);
    node.job(1, JobEvent::Output { len: 1000 });
    node.ack(1, 1000);
    node.give(Input::SessionLost);
    node.connect();
    let effects = node.ack(1, 0);
    assert_eq!(chunks(&effects, 1), [(0, 1000)]);
    // A word that exceeds what there is of a living job is cut.
    let effects = node.ack(1, 5000);
    assert_eq!(effects, []);
    let effects = node.job(1, JobEvent::Output { len: 1100 });
    assert_eq!(chunks(&effects, 1), [(1000, 100)]);
}

/// DISP-48, DISP-53, DISP-77
#[test]
fn a_result_waits_for_every_byte_and_is_repeated_until_recorded() {
    let mut node = Node::connected();
    node.run(1);
    node.job(1, JobEvent::Output { len: 100 });
    let effects = node.job(1, JobEvent::Result(done(150)));
    assert_eq!(sent(&effects), [state(1, RunState::Finished)]);
    assert_eq!(chunks(&effects, 1), [(100, 50)]);
    assert_eq!(node.wait(60), []);
    assert_eq!(node.ack(1, 149), []);
    let effects = node.ack(1, 150);
    assert_eq!(sent(&effects), [result(1, done(150))]);
    assert_eq!(node.wait(14), []);
    assert_eq!(sent(&node.wait(1)), [result(1, done(150))]);
    assert_eq!(sent(&node.wait(15)), [result(1, done(150))]);
    let effects = node.hub(HubJobMessage::Recorded { job: id(1) });
    assert_eq!(effects, [Effect::Remove { job: id(1) }]);
    assert_eq!(node.wait(60), []);
}

/// DISP-77
#[test]
fn a_result_is_sent_again_after_a_reconnect() {
    let mut node = Node::connected();
    node.run(1);
    node.job(1, JobEvent::Result(done(0)));
    node.give(Input::SessionLost);
    assert_eq!(node.wait(60), []);
    let effects = node.connect();
    let [NodeJobMessage::Held { jobs, .. }] = &sent(&effects)[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(jobs[0].state, RunState::Finished);
    assert!(jobs[0].finished);
    let effects = node.ack(1, 0);
    assert_eq!(sent(&effects), [result(1, done(0))]);
}

/// DISP-15
#[test]
fn held_goes_out_once_a_session_after_the_report() {
    let mut node = Node::new();
    let effects = node.connect();
    let [
        Effect::SendReport { session: 1, .. },
        Effect::Send {
            session: 1,
            message,
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert!(matches!(**message, NodeJobMessage::Held { .. }));
    node.run(1);
    node.offer(2, 1024, 90);
    node.give(Input::SessionLost);
    node.wait(30);
    let effects = node.connect();
    let [NodeJobMessage::Held { reservations, jobs }] = &sent(&effects)[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(reservations.len(), 1);
    assert_eq!(reservations[0].remaining_secs, 60);
    assert_eq!(jobs.len(), 1);
    assert_eq!(node.give(Input::Timeout), []);
}

/// DISP-02
#[test]
fn a_session_below_version_3_hears_nothing_of_jobs() {
    let mut node = Node::connected();
    node.run(1);
    node.give(Input::SessionLost);
    let effects = node.give(Input::SessionOpened {
        session: 9,
        version: 2,
    });
    assert!(matches!(effects[..], [Effect::SendReport { .. }]));
    assert_eq!(node.job(1, JobEvent::Output { len: 100 }), []);
}

/// CRED-15, REG-03
#[test]
fn secrets_go_with_the_result_and_the_directory_once_it_is_recorded() {
    let mut node = Node::connected();
    node.run(1);
    let effects = node.job(1, JobEvent::Result(done(0)));
    assert!(effects.contains(&Effect::DropSecrets { job: id(1) }));
    assert!(!effects.contains(&Effect::Remove { job: id(1) }));
    let text = serde_json::to_string(&node.kept).unwrap();
    assert!(!text.contains("a-job-token"));
    node.hub(HubJobMessage::Recorded { job: id(1) });
    node.job(1, JobEvent::Removed);
    assert_eq!(node.kept.last(), Some(&Record::Dropped { job: id(1) }));
}

#[test]
fn a_recorded_that_comes_too_early_changes_nothing() {
    let mut node = Node::connected();
    node.run(1);
    assert_eq!(node.hub(HubJobMessage::Recorded { job: id(1) }), []);
    assert_eq!(node.hub(HubJobMessage::Recorded { job: id(2) }), []);
    let effects = node.start(1, None, 1024, 1024);
    assert_eq!(sent(&effects), [state(1, RunState::Accepted)]);
}
