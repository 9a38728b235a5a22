//! What GitLab's answers to a job request do.

use std::time::Duration;

use vk_hub_proto::relay_session::RelayRunnerState;

use super::runner::{Runner, config, job, release, renew};
use crate::acquire::{Effect, Input, Note, RequestOutcome, VerifyAnswer};

fn states(effects: &[Effect]) -> Vec<RelayRunnerState> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::State(state) => Some(*state),
            _ => None,
        })
        .collect()
}

/// FLOW-24, GL-45
#[test]
fn a_204_without_last_update_is_asked_again_at_once() {
    let mut runner = Runner::requesting();
    runner.no_job(Some("one"));
    assert_eq!(runner.effects(), [Effect::ReturnSlot]);
    runner.pass_secs(3);
    assert_eq!(runner.ask_again(1).as_deref(), Some("one"));
    runner.pass_secs(5);
    runner.no_job(None);
    assert_eq!(
        runner.ask_again(1).as_deref(),
        Some("one"),
        "at once, with the old value"
    );
}

/// FLOW-24
#[test]
fn a_204_that_was_not_held_waits_the_check_interval() {
    let mut runner = Runner::requesting();
    runner.no_job(Some("one"));
    runner.pass(Duration::from_millis(2999));
    assert_eq!(runner.effects(), [Effect::ReturnSlot]);
    runner.pass(Duration::from_millis(1));
    assert_eq!(runner.effects(), [renew(1)]);
}

/// FLOW-24, GL-45
#[test]
fn a_gitlab_that_does_not_really_hold_requests_is_not_hammered() {
    let mut runner = Runner::requesting();
    runner.no_job(None);
    runner.ask_again(1);
    for _ in 0..5 {
        runner.no_job(None);
        assert_eq!(runner.effects(), [Effect::ReturnSlot], "waits this time");
        runner.pass_secs(3);
        runner.ask_again(1);
    }
    runner.pass_secs(50);
    runner.renewed(1, 90);
    runner.effects();
    runner.no_job(None);
    runner.ask_again(1);
}

/// GL-05
#[test]
fn a_201_is_a_job_and_the_runner_goes_on_to_the_next() {
    let mut runner = Runner::requesting();
    runner.answer(RequestOutcome::Job(job(77)), None);
    let effects = runner.effects();
    assert!(
        matches!(&effects[..], [Effect::TakeJob { job, .. }, Effect::AskCapacity { .. }] if job.gitlab_job == 77),
        "{effects:?}"
    );
    assert_eq!(runner.core.beat(runner.now, "ci".to_owned()).jobs, 1);
}

/// GL-05
#[test]
fn with_strict_check_interval_a_job_is_followed_by_a_pause() {
    let mut settings = config();
    settings.strict_check_interval = true;
    let mut runner = Runner::requesting_with(settings);
    runner.answer(RequestOutcome::Job(job(77)), None);
    assert!(matches!(runner.effects()[..], [Effect::TakeJob { .. }]));
    runner.pass(Duration::from_millis(2999));
    assert_eq!(runner.effects(), []);
    runner.pass(Duration::from_millis(1));
    assert!(matches!(runner.effects()[..], [Effect::AskCapacity { .. }]));
}

/// GL-06, GL-62
#[test]
fn a_403_stops_the_runner_until_a_daily_verify_succeeds() {
    let mut runner = Runner::requesting();
    runner.all_effects();
    runner.answer_status(403, None);
    let effects = runner.all_effects();
    assert!(effects.contains(&Effect::Note(Note::TokenRefused)));
    assert!(effects.contains(&release(1)));
    assert_eq!(states(&effects), [RelayRunnerState::TokenRefused]);
    runner.pass_secs(24 * 3600 - 1);
    assert_eq!(runner.effects(), [], "nothing at all for a day");
    runner.pass_secs(1);
    assert_eq!(runner.effects(), [Effect::Verify]);
    runner.give(Input::VerifyAnswer(VerifyAnswer::Refused));
    runner.pass_secs(24 * 3600);
    assert_eq!(runner.effects(), [Effect::Verify]);
    runner.give(Input::VerifyAnswer(VerifyAnswer::Taken));
    assert!(matches!(runner.effects()[..], [Effect::AskCapacity { .. }]));
}

/// GL-48
#[test]
fn a_409_is_asked_again_soon_and_does_not_count_as_unhealthy() {
    let mut runner = Runner::requesting();
    for _ in 0..5 {
        runner.answer_status(409, None);
        assert_eq!(runner.effects(), [Effect::ReturnSlot]);
        runner.pass(Duration::from_millis(249));
        assert_eq!(runner.effects(), []);
        runner.pass(Duration::from_millis(751));
        runner.take_slot();
        runner.expect_request();
    }
    assert_eq!(
        runner.core.beat(runner.now, "ci".to_owned()).state,
        RelayRunnerState::Polling
    );
}

/// GL-07, GL-08
#[test]
fn a_429_or_503_waits_as_long_as_it_says() {
    for status in [429, 503] {
        let mut runner = Runner::requesting();
        runner.answer_status(status, Some(40));
        runner.pass(Duration::from_millis(39_999));
        assert_eq!(runner.effects(), [Effect::ReturnSlot]);
        runner.pass(Duration::from_millis(1));
        runner.ask_again(1);
    }
}

/// GL-78
#[test]
fn a_429_or_503_that_says_nothing_backs_off_and_is_not_unhealthy() {
    let mut runner = Runner::requesting();
    for (status, secs) in [(429, 5), (503, 10), (429, 20), (503, 40)] {
        runner.answer_status(status, None);
        runner.pass(Duration::from_millis(secs * 1000 - 1));
        assert_eq!(runner.effects(), [Effect::ReturnSlot], "{secs} s");
        assert_eq!(
            runner.core.beat(runner.now, "ci".to_owned()).state,
            RelayRunnerState::Polling
        );
        runner.pass(Duration::from_millis(secs * 250 + 1));
        runner.ask_again(1);
    }
}

/// GL-63, ADM-30
#[test]
fn three_failures_in_a_row_pause_the_runner_and_say_so() {
    let mut runner = Runner::requesting();
    runner.answer(
        RequestOutcome::Failed {
            why: "connection reset".to_owned(),
            sent: true,
        },
        None,
    );
    runner.pass_secs(3);
    runner.ask_again(1);
    runner.answer_status(500, None);
    runner.pass_secs(3);
    runner.ask_again(1);
    runner.answer_status(502, None);
    let effects = runner.all_effects();
    assert_eq!(states(&effects), [RelayRunnerState::Unhealthy]);
    runner.pass(Duration::from_millis(29_999));
    assert_eq!(runner.effects(), []);
    runner.pass(Duration::from_millis(1));
    runner.ask_again(1);
    runner.answer_status(504, None);
    runner.pass_secs(59);
    assert_eq!(runner.effects(), [Effect::ReturnSlot], "then twice as long");
    runner.pass_secs(1);
    runner.ask_again(1);
    runner.all_effects();
    runner.no_job(Some("x"));
    assert_eq!(
        states(&runner.all_effects()),
        [RelayRunnerState::Polling],
        "one good answer ends it"
    );
}

/// ADM-38
#[test]
fn a_job_that_may_be_lost_with_its_request_is_told() {
    for (outcome, lost) in [
        (
            RequestOutcome::Failed {
                why: "timed out".to_owned(),
                sent: true,
            },
            true,
        ),
        (
            RequestOutcome::Failed {
                why: "connection refused".to_owned(),
                sent: false,
            },
            false,
        ),
        (
            RequestOutcome::Undecodable {
                why: "no id".to_owned(),
            },
            true,
        ),
    ] {
        let mut runner = Runner::requesting();
        runner.all_effects();
        runner.answer(outcome.clone(), None);
        let told = runner
            .all_effects()
            .iter()
            .any(|effect| matches!(effect, Effect::Note(Note::RequestLost { .. })));
        assert_eq!(told, lost, "{outcome:?}");
    }
}

/// GL-04, GL-61
#[test]
fn last_update_is_echoed_and_left_out_once_in_five_minutes() {
    let mut runner = Runner::requesting();
    let mut without = 0;
    for round in 0..200 {
        runner.no_job(Some("v"));
        runner.pass_secs(3);
        if runner.ask_again(1).is_none() {
            without += 1;
            assert!(round > 90, "not in the first five minutes: {round}");
        }
    }
    assert_eq!(without, 2, "600 s have two of them");
}

#[test]
fn a_beat_says_what_the_runner_does() {
    let mut runner = Runner::requesting();
    let beat = runner.core.beat(runner.now, "ci".to_owned());
    assert_eq!((beat.requests, beat.jobs, beat.last_answer), (1, 0, None));
    runner.no_job(None);
    runner.pass_secs(4);
    let beat = runner.core.beat(runner.now, "ci".to_owned());
    let last = beat.last_answer.expect("an answer");
    assert_eq!((beat.requests, last.status, last.age_secs), (0, 204, 4));
}
