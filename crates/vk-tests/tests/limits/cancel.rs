//! A job that prints nothing hears of its cancel through what the daemon asks GitLab meanwhile, and
//! then stops.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::fleet::{Fleet, Guests, test_root};
use crate::lab::{Lab, now_ms};
use crate::program::eventually;

/// The keep-alive's 30 s, and what a call takes.
const UNWATCHED_MS: u64 = 31_000;
/// GitLab's interval while a log is watched, 3 s, and what a call takes.
const WATCHED_MS: u64 = 4_000;
/// From the answer that says so to the script's last act.
const STOPS_MS: u64 = 2_000;
/// How long a file must stand still to be said to.
const STILL: Duration = Duration::from_secs(3);

/// What a silent job touches, found where the job's disk is on this machine.
struct Touched(PathBuf);

impl Touched {
    fn of(fleet: &Fleet, name: &str) -> Self {
        Self(eventually("the job touches its file", || {
            find(&fleet.path("node"), name)
        }))
    }

    /// When it last changed, once it no longer does.
    fn last_ms(&self) -> u64 {
        let (mut last, mut since) = (self.changed(), Instant::now());
        eventually("the file stands still", || {
            let now = self.changed();
            // A file that is gone with its job has changed for the last time.
            if now.is_some() && now != last {
                (last, since) = (now, Instant::now());
            }
            (since.elapsed() > STILL).then_some(())
        });
        last.expect("the file was there")
    }

    fn changed(&self) -> Option<u64> {
        let changed = fs::metadata(&self.0).ok()?.modified().ok()?;
        Some(ms(changed))
    }
}

fn ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// The first file of this name below a directory.
fn find(below: &Path, name: &str) -> Option<PathBuf> {
    let mut folders = vec![below.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let kind = entry.file_type().ok()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() == name {
                return Some(entry.path());
            }
        }
    }
    None
}

/// One cancelled job, and what was seen of it.
struct Seen {
    /// From the cancel to the answer that told of it.
    told_after: u64,
    /// From the cancel to the file's last change.
    ran_on: u64,
}

impl Seen {
    fn stopped_after(&self) -> u64 {
        self.ran_on.saturating_sub(self.told_after)
    }
}

/// Cancels a silent job that has run for a while.
fn cancel(fleet: &Fleet, lab: &Lab, name: &str, watched: bool, force: bool) -> (u64, Seen) {
    // GitLab names its interval with the first patch: who looks is there before.
    lab.pause(true);
    let job = lab.trigger(&json!({
        "name": "silent",
        "script": [format!("while true; do date > {name}; sleep 0.1; done")],
        "after_script": ["sleep 3", "echo after_script ran to its end"],
    }));
    let watcher = watched.then(|| lab.watch(job));
    lab.pause(false);
    let touched = Touched::of(fleet, name);
    eventually("the opening lines are with GitLab", || {
        (lab.job(job)["trace_size"].as_u64()? > 0).then_some(())
    });
    let cancelled = lab.cancel(job, force);
    let status = if force { "canceled" } else { "canceling" };
    let told = eventually("the daemon is told", || lab.told_ms(job, status));
    let last = touched.last_ms();
    drop(watcher);
    assert!(last + 1000 > told, "the script stopped by itself");
    let seen = Seen {
        told_after: told.saturating_sub(cancelled),
        ran_on: last.saturating_sub(cancelled),
    };
    println!(
        "watched {watched}, {status}: told after {} ms, the script stopped {} ms after that",
        seen.told_after,
        seen.stopped_after()
    );
    (job, seen)
}

fn check(watched: bool, within_ms: u64) {
    let Some(root) = test_root("cancels of silent jobs") else {
        return;
    };
    let fleet = Fleet::start(&root, Guests::Processes);
    let lab = Lab::of(&fleet, &root);
    for force in [false, true] {
        let name = format!("touched-{force}");
        let (job, seen) = cancel(&fleet, &lab, &name, watched, force);
        let (_, trace) = lab.ended_as(job, "canceled");
        assert!(
            seen.told_after <= within_ms,
            "told after {}",
            seen.told_after
        );
        assert!(
            seen.stopped_after() <= STOPS_MS,
            "stopped after {}",
            seen.stopped_after()
        );
        assert_eq!(
            trace.contains("after_script ran to its end"),
            !force,
            "{trace}"
        );
    }
    lab.assert_honest();
    fleet.assert_nothing_is_left();
}

/// GL-36, GL-37, GL-58
#[test]
fn a_silent_job_stops_within_2_s_of_the_answer_that_comes_within_31_s() {
    check(false, UNWATCHED_MS);
}

/// GL-19, GL-36, GL-37
#[test]
fn a_silent_job_whose_log_is_watched_is_told_within_4_s() {
    check(true, WATCHED_MS);
}

/// A guest's clock beside ours: the stamp of a line that says the guest's time.
fn stamped(trace: &str, word: &str) -> (u64, u64) {
    let line = trace
        .lines()
        .find(|line| line.contains(word) && !line.contains('$'));
    let line = line.unwrap_or_else(|| panic!("no {word:?} in {trace}"));
    let stamp = line.split_whitespace().next().unwrap();
    let said = line.rsplit(word).next().unwrap().trim();
    (stamp_ms(stamp), decimal_ms(said))
}

/// Milliseconds since midnight of a stamp such as `2026-01-02T03:04:05.678901Z`.
fn stamp_ms(stamp: &str) -> u64 {
    let (_, time) = stamp.trim_end_matches('Z').split_once('T').unwrap();
    let parts = time.split(':').map(decimal_ms);
    parts.fold(0, |all, part| all * 60 + part)
}

/// Seconds such as `12.3` in milliseconds.
fn decimal_ms(seconds: &str) -> u64 {
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    whole.parse::<u64>().unwrap() * 1000 + part.parse::<u64>().unwrap()
}

/// GL-36
#[test]
fn a_silent_job_in_a_machine_stops_and_its_after_script_runs() {
    let Some(root) = test_root("cancels of silent jobs in machines") else {
        return;
    };
    let fleet = Fleet::start(&root, Guests::Machines);
    let lab = Lab::of(&fleet, &root);
    let job = lab.trigger(&json!({
        "name": "silent",
        // The trace's stamp of this line says what the guest's clock is worth.
        "script": [
            "echo uptime is $(cut -d ' ' -f 1 /proc/uptime)",
            "while true; do cut -d ' ' -f 1 /proc/uptime >> /touched; sleep 0.1; done",
        ],
        "after_script": ["sleep 3", "echo last touched at $(tail -n 1 /touched)"],
    }));
    let _watcher = lab.watch(job);
    eventually("the job is silent", || {
        lab.trace(job).contains("uptime is").then_some(())
    });
    let cancelled = lab.cancel(job, false);
    let told = eventually("the daemon is told", || lab.told_ms(job, "canceling"));
    let (_, trace) = lab.ended_as(job, "canceled");
    let (stamp, uptime) = stamped(&trace, "uptime is");
    let (_, last) = stamped(&trace, "last touched at");
    let midnight = told - told % 86_400_000;
    let last = midnight + stamp + last - uptime;
    println!(
        "a machine: told after {} ms, the script stopped {} ms after that",
        told.saturating_sub(cancelled),
        last.saturating_sub(told)
    );
    assert!(last + 1000 > told, "it stopped by itself");
    assert!(last <= told + STOPS_MS, "stopped {} ms after", last - told);
    lab.assert_honest();
    fleet.assert_nothing_is_left();
}

/// GL-37
#[test]
fn a_machine_whose_job_gitlab_ended_is_gone_at_once() {
    let Some(root) = test_root("cancels of silent jobs in machines") else {
        return;
    };
    let fleet = Fleet::start(&root, Guests::Machines);
    let lab = Lab::of(&fleet, &root);
    let job = lab.trigger(&json!({
        "name": "silent", "script": ["echo begun", "while true; do sleep 0.1; done"],
    }));
    let _watcher = lab.watch(job);
    eventually("the job is silent", || {
        lab.trace(job).contains("begun").then_some(())
    });
    let machines = || {
        let all = fleet.job_processes();
        all.into_iter()
            .filter(|(_, line)| line.contains("qemu"))
            .count()
    };
    assert!(machines() > 0, "{:?}", fleet.job_processes());
    let cancelled = lab.cancel(job, true);
    let told = eventually("the daemon is told", || lab.told_ms(job, "canceled"));
    eventually("the machine ends", || (machines() == 0).then_some(()));
    let gone = now_ms().saturating_sub(told);
    println!(
        "a machine: told after {} ms, gone {gone} ms after that",
        told - cancelled
    );
    assert!(gone <= STOPS_MS, "gone after {gone}");
    lab.assert_honest();
    fleet.assert_nothing_is_left();
}
