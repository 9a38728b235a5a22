//! A storm: many jobs at a time through one daemon that dies all the time, at boundaries of its
//! records and effects that are drawn by seed.
//!
//! The table of kills tells one short story a boundary; here what a death leaves of one job meets
//! what it leaves of the others.

mod account;
mod course;
pub(crate) mod draw;
mod job;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::table::point::Point;
use crate::fleet::{Fleet, test_root};
use crate::settings::Settings;
use draw::Draw;
use job::Job;
use watch::Watch;

const TICK: Duration = Duration::from_millis(10);

/// How much of it.
#[derive(Clone, Copy)]
struct Size {
    /// Jobs that come to an end.
    jobs: usize,
    /// Deaths of the daemon.
    kills: usize,
    /// Jobs at a time.
    at_once: usize,
}

const SMALL: Size = Size {
    jobs: 12,
    kills: 24,
    at_once: 5,
};
const FULL: Size = Size {
    jobs: 200,
    kills: 500,
    at_once: 8,
};

/// One life of the daemon.
struct Life {
    /// When it was begun: milliseconds of the world's clock.
    from_ms: u64,
    /// The jobs that its state file held when it died.
    held: Option<BTreeSet<u64>>,
}

impl Life {
    /// One that begins now.
    fn begins() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self {
            from_ms: u64::try_from(since.as_millis()).unwrap(),
            held: None,
        }
    }
}

/// Where the daemon is to die.
#[derive(Debug, Clone, Copy)]
struct Aim {
    point: Point,
    nth: u32,
    /// Since when, or since jobs were moved on.
    since: Instant,
    /// How often they were.
    pushes: u32,
}

struct Storm {
    fleet: Fleet,
    size: Size,
    draw: Draw,
    points: Vec<Point>,
    jobs: BTreeMap<u64, Job>,
    watch: Watch,
    outputs: BTreeSet<String>,
    lives: Vec<Life>,
    aim: Option<Aim>,
    /// Where it died.
    boundaries: BTreeSet<String>,
    kills: usize,
    /// Moments that did not come.
    redrawn: usize,
    /// What happened last, and when.
    moved: ((usize, usize, usize), Instant),
}

/// FAIL-22, STATE-01, STATE-03, STATE-04, STATE-20, GL-50, GL-72: however often the daemon dies, each
/// of its jobs runs once and has one end, or was never kept and never ran; each log is exact, and of
/// a job that is over no secret is left.
#[test]
fn jobs_side_by_side_come_through_a_daemon_that_dies_all_the_time() {
    let Some(root) = test_root("a storm of kills") else {
        return;
    };
    let seed = std::env::var("VK_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let is_long = std::env::var_os("VK_LONG").is_some();
    let size = if is_long { FULL } else { SMALL };
    println!(
        "a storm of {} kills over {} jobs, seed {seed}",
        size.kills, size.jobs
    );
    let begun = Instant::now();
    let mut storm = Storm::new(&root, size, seed);
    while !storm.is_over() {
        storm.tick();
        std::thread::sleep(TICK);
    }
    let sums = account::check(&storm);
    println!(
        "seed {seed}: {} kills at {} of {} boundaries, {} moments drawn anew, {} jobs: {:?}, {} \
         orphans, {} bytes of logs exact, in {} s",
        storm.kills,
        storm.boundaries.len(),
        storm.points.len(),
        storm.redrawn,
        storm.jobs.len(),
        sums.ends,
        sums.orphans,
        sums.bytes,
        begun.elapsed().as_secs()
    );
    assert!(storm.kills >= size.kills);
}

impl Storm {
    fn new(root: &Path, size: Size, seed: u64) -> Self {
        let settings = Settings {
            held: true,
            // One less than there are: one waits for a slot.
            concurrent: u32::try_from(size.at_once - 1).unwrap(),
            requests: 2,
            // A daemon that dies leaves its reservations until their leases end.
            schedule: "mem_budget = \"1024G\"".to_owned(),
            ..Settings::default()
        };
        let lives = vec![Life::begins()];
        let fleet = Fleet::with(root, &settings);
        Self {
            fleet,
            size,
            draw: Draw::of(seed),
            points: draw::points(),
            jobs: BTreeMap::new(),
            watch: Watch::default(),
            outputs: BTreeSet::new(),
            lives,
            aim: None,
            boundaries: BTreeSet::new(),
            kills: 0,
            redrawn: 0,
            moved: ((0, 0, 0), Instant::now()),
        }
    }
}
