//! The time stamp counter's frequency, which the guest's kernel must be told.
//!
//! Left to itself the guest calibrates the counter against an emulated timer; on a busy host that
//! fails and the kernel stops before init for ever.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::sys::time_stamp_counter;

/// How long the counter is watched: a bracket of 100 ns over 20 ms is an error of 5 ppm.
const WATCHED: Duration = Duration::from_millis(20);
/// How many brackets are tried at either end; the tightest counts.
const BRACKETS: usize = 16;
/// What a counter can plausibly tick at, in kHz: slower or faster is a broken measurement.
const PLAUSIBLE_KHZ: std::ops::RangeInclusive<u64> = 100_000..=20_000_000;

/// A moment read on both clocks.
#[derive(Debug, Clone, Copy)]
struct Reading {
    nanoseconds: u64,
    ticks: u64,
}

/// The counter's frequency in kHz, measured once a process against `CLOCK_MONOTONIC_RAW`.
///
/// The first call takes 20 ms and blocks; `None` when the counter does not tick plausibly, in which
/// case a guest must calibrate by itself.
#[must_use]
pub fn frequency_khz() -> Option<u64> {
    static MEASURED: OnceLock<Option<u64>> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let first = tightest();
        std::thread::sleep(WATCHED);
        frequency_between(first, tightest())
    })
}

/// Ticks a millisecond between two readings, if that is a frequency a processor can have.
fn frequency_between(first: Reading, last: Reading) -> Option<u64> {
    let ticks = u128::from(last.ticks.checked_sub(first.ticks)?);
    let nanoseconds = u128::from(last.nanoseconds.checked_sub(first.nanoseconds)?);
    let khz = u64::try_from((ticks * 1_000_000).checked_div(nanoseconds)?).ok()?;
    PLAUSIBLE_KHZ.contains(&khz).then_some(khz)
}

fn tightest() -> Reading {
    let mut best = bracket();
    for _ in 1..BRACKETS {
        let next = bracket();
        if next.1 < best.1 {
            best = next;
        }
    }
    best.0
}

/// One reading of the counter between two of the clock, and how far these two lie apart.
fn bracket() -> (Reading, u64) {
    let before = raw_nanoseconds();
    let ticks = time_stamp_counter();
    let after = raw_nanoseconds();
    let width = after.saturating_sub(before);
    (
        Reading {
            nanoseconds: before.saturating_add(width / 2),
            ticks,
        },
        width,
    )
}

fn raw_nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::MonotonicRaw);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let rest = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_readings_give_the_frequency() {
        let first = Reading {
            nanoseconds: 1_000,
            ticks: 5_000,
        };
        let last = Reading {
            nanoseconds: 10_001_000,
            ticks: 26_005_000,
        };
        assert_eq!(frequency_between(first, last), Some(2_600_000));
    }

    #[test]
    fn a_counter_that_stands_still_or_runs_back_has_no_frequency() {
        let first = Reading {
            nanoseconds: 1_000,
            ticks: 5_000,
        };
        for ticks in [5_000, 4_000] {
            let last = Reading {
                nanoseconds: 20_001_000,
                ticks,
            };
            assert_eq!(frequency_between(first, last), None);
        }
        assert_eq!(frequency_between(first, first), None);
    }

    #[test]
    fn the_processors_own_frequency_is_measured_alike_twice() {
        let remembered = frequency_khz().expect("a plausible frequency");
        let first = tightest();
        std::thread::sleep(WATCHED);
        let again = frequency_between(first, tightest()).expect("a plausible frequency");
        let apart = remembered.abs_diff(again);
        assert!(
            apart * 1_000 < remembered,
            "{remembered} kHz, then {again} kHz"
        );
    }
}
