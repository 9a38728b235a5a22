//! `/runners/verify`.

use std::time::Duration;

use super::runner::{Runner, config};
use crate::acquire::{Effect, Input, VerifyAnswer};

/// GL-40
#[test]
fn the_token_is_verified_at_start_and_every_day_of_a_busy_runner() {
    const DAY: u64 = 24 * 3600;
    let mut runner = Runner::opened(config());
    assert!(runner.effects().contains(&Effect::Verify), "at start");
    runner.give(Input::VerifyAnswer(VerifyAnswer::Taken));
    // The runner asks for jobs all the time, so that no silence is to be broken.
    runner.feed_ids();
    runner.give(Input::SlotFree(true));
    runner.reserve(1);
    runner.take_slot();
    runner.expect_request();
    let mut asked_at = Some(0);
    let (mut verified, mut requests) = (Vec::new(), 0);
    for second in 1..=2 * DAY + 3600 {
        runner.pass_secs(1);
        if asked_at.is_some_and(|at| at + 50 == second) {
            asked_at = None;
            runner.no_job(None);
        }
        for effect in runner.effects() {
            match effect {
                Effect::Verify => {
                    verified.push(second);
                    runner.give(Input::VerifyAnswer(VerifyAnswer::Taken));
                }
                Effect::Renew { .. } => runner.renewed(1, 90),
                Effect::TakeSlot { lane } => runner.give(Input::SlotAnswer { lane, taken: true }),
                Effect::RequestJob { .. } => {
                    requests += 1;
                    asked_at = Some(second);
                }
                Effect::ReturnSlot => {}
                other => panic!("{second}: {other:?}"),
            }
        }
    }
    assert_eq!(verified, [DAY, 2 * DAY]);
    assert!(requests > 3000, "busy: {requests}");
}

fn count(effects: &[Effect]) -> usize {
    effects
        .iter()
        .filter(|effect| **effect == Effect::Verify)
        .count()
}

/// ADM-36
#[test]
fn a_runner_that_waits_for_room_shows_itself_at_least_every_ten_minutes() {
    let mut runner = Runner::ready(config());
    runner.effects();
    runner.capacity(7, 0);
    for _ in 0..20 {
        let mut waited = Duration::ZERO;
        while count(&runner.effects()) == 0 {
            runner.pass_secs(1);
            waited += Duration::from_secs(1);
            assert!(waited < Duration::from_secs(600), "silent for {waited:?}");
        }
        runner.give(Input::VerifyAnswer(VerifyAnswer::Taken));
        assert!(waited > Duration::from_secs(500), "no more than needed");
    }
}

/// GL-62
#[test]
fn a_runner_whose_token_is_refused_shows_itself_daily_only() {
    let mut runner = Runner::opened(config());
    runner.feed_ids();
    runner.give(Input::SlotFree(true));
    runner.effects();
    runner.give(Input::VerifyAnswer(VerifyAnswer::Refused));
    runner.pass_secs(24 * 3600 - 1);
    assert_eq!(runner.effects(), []);
    runner.pass_secs(1);
    assert_eq!(runner.effects(), [Effect::Verify]);
}

/// GL-40
#[test]
fn a_verify_without_an_answer_is_tried_again() {
    let mut runner = Runner::opened(config());
    runner.give(Input::SlotFree(false));
    runner.effects();
    runner.give(Input::VerifyAnswer(VerifyAnswer::Unavailable {
        retry_after: None,
    }));
    assert_eq!(
        runner.effects(),
        [Effect::WantSlot],
        "without a slot only verifies go out"
    );
    for secs in [5, 10, 20, 40, 80, 160, 300, 300] {
        runner.pass(Duration::from_millis(secs * 1000 - 1));
        assert_eq!(runner.effects(), [], "{secs} s");
        runner.pass(Duration::from_millis(secs * 250 + 1));
        assert_eq!(runner.effects(), [Effect::Verify]);
        runner.give(Input::VerifyAnswer(VerifyAnswer::Unavailable {
            retry_after: None,
        }));
    }
}

/// SPEC-80
#[test]
fn a_verify_that_fails_at_start_does_not_keep_jobs_away() {
    let mut runner = Runner::opened(config());
    runner.feed_ids();
    runner.give(Input::SlotFree(true));
    runner.effects();
    runner.give(Input::VerifyAnswer(VerifyAnswer::Unavailable {
        retry_after: None,
    }));
    runner.reserve(1);
    runner.take_slot();
    runner.expect_request();
    assert_eq!(runner.core.token_accepted(), None, "nobody knows yet");
    runner.answer_status(403, None);
    runner.pass_secs(3600);
    assert_eq!(
        runner.effects(),
        [Effect::ReturnSlot, super::runner::release(1)],
        "now it is known"
    );
}
