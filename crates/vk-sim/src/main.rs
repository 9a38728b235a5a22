//! Runs fleets by seed for as long as asked: `vk-sim [FIRST_SEED [COUNT]]`.
//!
//! Prints one line a bad run with what did not hold, the totals at the end, and exits 1 if any run
//! was bad, 2 if the arguments make no sense. `vk-sim SEED` alone runs one seed and prints what
//! happened in it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use vk_sim::{Faults, Plan, run};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Result<Vec<u64>, _> = arguments.iter().map(|text| text.parse()).collect();
    match numbers.as_deref() {
        Ok([seed]) => one(*seed),
        Ok([first, count]) => many(*first, *count),
        Ok([]) => many(1, 100),
        _ => {
            eprintln!("usage: vk-sim [FIRST_SEED [COUNT]], both numbers");
            ExitCode::from(2)
        }
    }
}

fn one(seed: u64) -> ExitCode {
    let outcome = run(
        seed,
        Plan {
            log: true,
            ..Plan::default()
        },
        None,
    );
    outcome.log.iter().for_each(|line| println!("{line}"));
    println!("{}", outcome.faults);
    outcome
        .violations
        .iter()
        .for_each(|what| println!("{what}"));
    ExitCode::from(u8::from(!outcome.violations.is_empty()))
}

fn many(first: u64, count: u64) -> ExitCode {
    let mut faults = Faults::default();
    let (mut jobs, mut orphans, mut bad) = (0, 0, 0_u64);
    for seed in first..first.saturating_add(count) {
        let outcome = run(seed, Plan::default(), None);
        faults.add(&outcome.faults);
        jobs += outcome.jobs;
        orphans += outcome.orphans;
        if !outcome.violations.is_empty() {
            bad += 1;
            println!("seed {seed}: {}", outcome.violations.join("; "));
        }
    }
    println!(
        "{count} seeds from {first}: {jobs} jobs, {orphans} orphans, {bad} bad runs\n{faults}"
    );
    ExitCode::from(u8::from(bad > 0))
}
