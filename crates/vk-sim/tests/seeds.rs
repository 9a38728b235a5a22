//! A hundred fleets by seed, and the proof that the invariants bite.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

use vk_sim::{Breakage, Fault, Faults, Outcome, Plan, Victim, run};

/// Seeds in an ordinary run; `make long SEED= COUNT=` asks for others.
const SEEDS: u64 = 100;

/// The seeds to run: `VK_SEED` is the first, `VK_COUNT` how many.
fn seeds() -> std::ops::Range<u64> {
    let asked = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let first = asked("VK_SEED").unwrap_or(1);
    first..first + asked("VK_COUNT").unwrap_or(SEEDS)
}

fn plan() -> Plan {
    Plan::default()
}

/// SESS-09, SESS-15, ADM-20, ADM-27, DISP-64, DISP-65, DISP-66, FAIL-01, FAIL-02, FAIL-03, FAIL-04, FAIL-27
#[test]
fn a_hundred_fleets_keep_every_promise_whoever_is_killed_or_cut_off() {
    let mut faults = Faults::default();
    let (mut jobs, mut orphans, mut losses) = (0, 0, 0);
    let seeds = seeds();
    for seed in seeds.clone() {
        let outcome = run(seed, plan(), None);
        assert_good(&outcome);
        assert_enough(&outcome);
        faults.add(&outcome.faults);
        jobs += outcome.jobs;
        orphans += outcome.orphans;
        losses += outcome.recorded_losses;
    }
    assert!(faults.of(Fault::DiskLost) > 0 && faults.of(Fault::StartRepeated) > 0);
    println!("seeds {seeds:?}: {jobs} jobs, {orphans} orphans, {losses} recorded losses\n{faults}");
    assert!(faults.of(Fault::SessionCut) > 0 && faults.of(Fault::NodePartitioned) > 0);
    assert!(faults.of(Fault::HubAnswerLost) > 0 && faults.of(Fault::GitLabAnswerLost) > 0);
    assert!(faults.of(Fault::CancelGraceful) > 0 && faults.of(Fault::CancelForced) > 0);
    assert!(faults.of(Fault::JobKilled) > 0);
    assert!(faults.of(Fault::RelayCut) > 0 && faults.of(Fault::ServerRejected) > 0);
}

fn assert_good(outcome: &Outcome) {
    assert!(
        outcome.violations.is_empty(),
        "seed {} after {} ms:\n{}\n{}",
        outcome.seed,
        outcome.took_ms,
        outcome.violations.join("\n"),
        outcome.faults
    );
}

/// Each run is large enough and bad enough to mean something.
fn assert_enough(outcome: &Outcome) {
    let seed = outcome.seed;
    assert!(plan().nodes >= 2 && outcome.jobs >= 5, "seed {seed}");
    for victim in [Victim::Daemon, Victim::Hub, Victim::Node] {
        assert!(
            outcome.faults.kills(victim) >= 3,
            "seed {seed}: kills of {victim:?}"
        );
    }
    let cuts = outcome.faults.of(Fault::SessionCut) + outcome.faults.of(Fault::NodePartitioned);
    assert!(cuts >= 1, "seed {seed}: no session was cut");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (one, two) = (run(7, plan(), None), run(7, plan(), None));
    assert_eq!(one.faults, two.faults);
    assert_eq!((one.took_ms, one.jobs), (two.took_ms, two.jobs));
}

#[test]
fn a_fleet_without_faults_loses_nothing_and_takes_every_job_under_a_reservation() {
    let calm = Plan {
        kills: 0,
        cuts: 0,
        job_kills: 0,
        disk_losses: 0,
        small_faults: false,
        ..plan()
    };
    for seed in 1..=10 {
        let outcome = run(seed, calm.clone(), None);
        assert_good(&outcome);
        assert_eq!(
            (outcome.orphans, outcome.recorded_losses),
            (0, 0),
            "seed {seed}"
        );
        assert_eq!(outcome.with_reservation, outcome.jobs, "seed {seed}");
    }
}

fn assert_found(breakage: Breakage, words: &str) {
    let found = (1..=SEEDS).find_map(|seed| {
        let outcome = run(seed, plan(), Some(breakage));
        let what = outcome
            .violations
            .into_iter()
            .find(|what| what.contains(words))?;
        Some((seed, what))
    });
    let (seed, what) = found.unwrap_or_else(|| panic!("{breakage:?} was not found"));
    println!("{breakage:?} found with seed {seed}: {what}");
}

#[test]
fn a_start_sent_twice_is_found() {
    assert_found(Breakage::DoubleStart, "started twice");
}

#[test]
fn an_ack_before_the_sync_is_found() {
    assert_found(Breakage::AckBeforeSync, "acked to");
}

#[test]
fn a_job_request_without_a_reservation_is_found() {
    assert_found(Breakage::NoReservation, "a job request under");
}

/// DISP-41
#[test]
fn a_node_that_forgets_a_recorded_job_is_found() {
    assert_found(Breakage::ForgottenJob, "started twice");
}

/// DISP-72
#[test]
fn a_hub_that_places_a_lost_job_again_is_found() {
    assert_found(Breakage::PlacedAgain, "started twice");
}

#[test]
fn a_job_request_without_the_hubs_word_is_found() {
    assert_found(Breakage::AskUnapproved, "while the server is");
}

/// ADM-24
#[test]
fn a_job_waits_for_room_as_long_as_was_asked_for_and_no_longer() {
    // The only node goes away under a job request, and stays away for longer than a job waits.
    let plan = Plan {
        nodes: 1,
        cuts: 6,
        jobs: 24,
        long_cuts: true,
        kills: 0,
        job_kills: 0,
        disk_losses: 0,
        small_faults: false,
        ..plan()
    };
    let seeds = 1..=8;
    let mut no_room = 0;
    for seed in seeds.clone() {
        let outcome = run(seed, plan.clone(), None);
        assert_good(&outcome);
        no_room += outcome.no_room;
    }
    assert!(no_room >= 2, "{no_room} jobs found no room");
    let late = seeds.clone().find_map(|seed| {
        let outcome = run(seed, plan.clone(), Some(Breakage::LongWait));
        let mut all = outcome.violations.into_iter();
        all.find(|what| what.contains("ms for room"))
    });
    println!(
        "{no_room} without room; {}",
        late.expect("a longer wait is found")
    );
}

#[test]
fn a_forgotten_cancel_is_found() {
    assert_found(Breakage::ForgottenCancel, "its cancel was forgotten");
}
