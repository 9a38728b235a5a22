//! Cancels, and jobs the hub gave up.

use vk_hub_proto::dispatch::NodeJobMessage;

use super::*;
use crate::Stop;

fn stop(n: u8, how: Stop) -> Effect {
    Effect::Stop { job: id(n), how }
}

/// DISP-12
#[test]
fn a_cancel_is_kept_passed_on_and_answered() {
    let mut node = Node::connected();
    node.run(1);
    let effects = node.cancel(1, CancelMode::Graceful);
    assert_eq!(effects[0], stop(1, Stop::Graceful));
    assert_eq!(sent(&effects), [state(1, RunState::Accepted)]);
    let kept = node.kept.len();
    // Repeats keep nothing more, and a later immediate overrides, never the reverse.
    node.cancel(1, CancelMode::Graceful);
    assert_eq!(node.kept.len(), kept);
    let effects = node.cancel(1, CancelMode::Immediate);
    assert_eq!(effects[0], stop(1, Stop::Immediate));
    let effects = node.cancel(1, CancelMode::Graceful);
    assert_eq!(effects[0], stop(1, Stop::Immediate));
    assert_eq!(node.kept.len(), kept + 1);
}

/// DISP-12
#[test]
fn a_cancel_waits_for_a_process_that_is_being_started() {
    let mut node = Node::connected();
    node.start(1, None, 1024, 1024);
    let effects = node.cancel(1, CancelMode::Graceful);
    assert_eq!(sent(&effects).len(), effects.len());
    let effects = node.job(1, JobEvent::Alive { output_len: 0 });
    assert!(effects.contains(&stop(1, Stop::Graceful)));
}

/// DISP-75
#[test]
fn a_cancel_of_a_job_not_held_is_invalid() {
    let mut node = Node::connected();
    let effects = node.cancel(1, CancelMode::Immediate);
    assert_eq!(refused(&effects, 1), RefusalReason::Invalid);
}

#[test]
fn a_cancel_after_the_end_is_answered_with_the_end() {
    let mut node = Node::connected();
    node.run(1);
    node.job(1, JobEvent::Result(done(0)));
    let effects = node.cancel(1, CancelMode::Immediate);
    let answers = sent(&effects);
    assert_eq!(answers[0], state(1, RunState::Finished));
    assert!(matches!(answers[1], NodeJobMessage::Result { .. }));
    assert_eq!(answers.len(), effects.len());
}

/// DISP-76
#[test]
fn a_job_the_hub_gave_up_sends_no_more_output_only_its_result() {
    let mut node = Node::connected();
    node.run(1);
    node.job(1, JobEvent::Output { len: 1000 });
    node.give(Input::SessionLost);
    node.connect();
    let effects = node.cancel(1, CancelMode::Immediate);
    assert!(effects.contains(&stop(1, Stop::Immediate)));
    assert_eq!(node.job(1, JobEvent::Output { len: 2000 }), []);
    assert_eq!(node.ack(1, 500), []);
    let effects = node.job(1, JobEvent::Result(done(2500)));
    assert_eq!(chunks(&effects, 1), []);
    let [finished, NodeJobMessage::Result { result, .. }] = &sent(&effects)[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(finished, &state(1, RunState::Finished));
    assert_eq!(result.output_len, 2500);
    let repeated = sent(&node.wait(15));
    assert!(matches!(repeated[..], [NodeJobMessage::Result { .. }]));
}

/// DISP-76
#[test]
fn a_job_the_hub_follows_sends_its_output_also_after_an_immediate_cancel() {
    let mut node = Node::connected();
    node.run(1);
    node.give(Input::SessionLost);
    node.connect();
    node.ack(1, 0);
    node.cancel(1, CancelMode::Immediate);
    let effects = node.job(1, JobEvent::Output { len: 2000 });
    assert_eq!(chunks(&effects, 1), [(0, 2000)]);
    // A graceful cancel in the place of the ack gives nothing up either.
    node.give(Input::SessionLost);
    node.connect();
    node.cancel(1, CancelMode::Graceful);
    let effects = node.ack(1, 100);
    assert_eq!(chunks(&effects, 1), [(100, 1900)]);
}

/// FAIL-12
#[test]
fn a_stopping_host_interrupts_its_jobs_and_takes_no_more() {
    let mut node = Node::connected();
    node.run(1);
    node.start(2, None, 1024, 1024);
    let effects = node.give(Input::InterruptJobs);
    assert_eq!(effects, [stop(1, Stop::Interrupt)]);
    let effects = node.job(2, JobEvent::Alive { output_len: 0 });
    assert!(effects.contains(&stop(2, Stop::Interrupt)));
    let effects = node.start(3, None, 1024, 1024);
    assert_eq!(refused(&effects, 3), RefusalReason::NotReady);
}
