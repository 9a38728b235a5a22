//! The daemon, the hub, the node and the job process killed at every boundary of their records and
//! effects, once each; and at the job process's boundaries its VM and the agent in it, at the node's its
//! connection to the hub.

mod account;
mod act;
mod census;
mod kept;
mod machines;
pub(crate) mod point;
mod story;
mod strike;
mod tell;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::fleet::{Fleet, test_root};
use point::Point;
use story::{House, Story};
use tell::{Told, tell};

/// Fleets side by side: most of a story is waiting.
const FLEETS: usize = 8;
/// Points told in one fleet's life.
const CHUNK: usize = 12;

/// What came of a point.
enum Row {
    Told(Told),
    Unreached,
    Failed(String),
}

/// What is told.
type Rows = Vec<(Point, Story, Row)>;
/// What is told in one fleet, one after another.
type Chunk = (House, Vec<(Point, Story)>);

/// FAIL-22, FAIL-25, FAIL-32, FAIL-34, STATE-04, STATE-20, API-73, DISP-41, DISP-48, DISP-49: whoever
/// dies, and whenever: the job runs at most once, its log is whole in GitLab and says what is known,
/// and nothing of it is left.
#[test]
fn every_party_dies_at_every_boundary_and_nothing_is_lost_or_done_twice() {
    let Some(root) = test_root("the table of kills") else {
        return;
    };
    let only = std::env::var("VK_KILLS_ONLY").unwrap_or_default();
    let is_long = std::env::var_os("VK_LONG").is_some();
    let points = point::all().into_iter().filter(|point| {
        let name = format!("{} {point}", point.victim.name());
        let is_asked = only.split(',').any(|part| name.contains(part));
        is_asked && (is_long || !only.is_empty() || point.is_told_always())
    });
    let mut houses: BTreeMap<House, Vec<(Point, Story)>> = BTreeMap::new();
    let mut elsewhere = Vec::new();
    for point in points {
        match story::of(&point) {
            Ok(story) => houses
                .entry(story.house())
                .or_default()
                .push((point, story)),
            Err(why) => elsewhere.push((point, why)),
        }
    }
    let chunks = houses
        .iter()
        .flat_map(|(house, points)| points.chunks(CHUNK).map(|chunk| (*house, chunk.to_vec())));
    tell_chunks(&root, chunks.collect(), FLEETS, &elsewhere);
}

/// Tells them, so many fleets side by side, and what came of it.
fn tell_chunks(root: &Path, mut chunks: Vec<Chunk>, fleets: usize, elsewhere: &[(Point, &str)]) {
    let begun = Instant::now();
    chunks.sort_by_key(|(_, chunk)| chunk.len());
    let chunks = Mutex::new(chunks);
    let rows = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..fleets {
            scope.spawn(|| {
                while let Some((house, chunk)) = take(&chunks) {
                    tell_all(root, house, &chunk, &rows);
                }
            });
        }
    });
    let rows: Rows = rows.into_inner().unwrap();
    let is_orphan = |row: &&(_, _, Row)| matches!(&row.2, Row::Told(told) if told.orphan);
    let orphans = rows.iter().filter(is_orphan).count();
    let mut victims: BTreeMap<&str, usize> = BTreeMap::new();
    for (point, _, row) in &rows {
        *victims.entry(point.victim.name()).or_default() +=
            usize::from(matches!(row, Row::Told(_)));
    }
    let failures = print(rows, elsewhere);
    println!(
        "{} kills in {} s, {victims:?}, {orphans} of them left GitLab an orphan, {} elsewhere",
        victims.values().sum::<usize>(),
        begun.elapsed().as_secs(),
        elsewhere.len()
    );
    assert!(failures.is_empty(), "{failures:#?}");
}

fn take<T>(from: &Mutex<Vec<T>>) -> Option<T> {
    from.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

fn tell_all(root: &Path, house: House, chunk: &[(Point, Story)], rows: &Mutex<Rows>) {
    let mut fleet = None;
    for (point, story) in chunk {
        let told = catch_unwind(AssertUnwindSafe(|| {
            let mut here = fleet
                .take()
                .unwrap_or_else(|| Fleet::with(root, &house.settings()));
            let told = tell(&mut here, house, *point, *story);
            (here, told)
        }));
        let row = match told {
            Ok((here, told)) => {
                if told.is_none() {
                    here.print_logs();
                }
                fleet = Some(here);
                told.map_or(Row::Unreached, Row::Told)
            }
            Err(why) => {
                let text = why.downcast_ref::<String>().cloned();
                let text =
                    text.or_else(|| why.downcast_ref().map(|text: &&str| (*text).to_owned()));
                Row::Failed(text.unwrap_or_default())
            }
        };
        let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.push((*point, *story, row));
    }
    let wrong = fleet.map(|fleet| account::of_the_whole(&fleet));
    if let (Some(wrong), Some((point, story))) = (wrong, chunk.last())
        && !wrong.is_empty()
    {
        let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.push((
            *point,
            *story,
            Row::Failed(format!("or one before it: {wrong:?}")),
        ));
    }
}

/// Prints the table; the points that were not as they must be.
fn print(mut rows: Rows, elsewhere: &[(Point, &str)]) -> Vec<String> {
    rows.sort_by_key(|(point, ..)| {
        (
            point.victim,
            point.core,
            point.kind,
            point.variant,
            point.nth,
        )
    });
    let mut failures = Vec::new();
    for (point, story, row) in rows {
        let what = match row {
            Row::Told(told) => told.to_string(),
            Row::Unreached => {
                failures.push(format!("{point} of {story:?}: never reached"));
                "NEVER REACHED".to_owned()
            }
            Row::Failed(why) => {
                failures.push(format!("{point} of {story:?}: {why}"));
                "FAILED".to_owned()
            }
        };
        let victim = point.victim.name();
        println!("{victim:<7} {:<36} {story:<10?} {what}", point.to_string());
    }
    for (point, why) in elsewhere {
        println!(
            "{:<7} {:<36} elsewhere: {why}",
            point.victim.name(),
            point.to_string()
        );
    }
    failures
}
