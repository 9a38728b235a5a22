//! The same with real VMs, at moments drawn by seed.

use super::point::{self, Point, Victim};
use super::story::{self, House, Story};
use super::tell::TICKS;
use crate::fleet::test_root;
use crate::storm::draw::Draw;

/// Whoever is on a node or between it and its hub, in turn.
const VICTIMS: [Victim; 5] = [
    Victim::Machine,
    Victim::Agent,
    Victim::Job,
    Victim::Node,
    Victim::Session,
];
/// Kills with `VK_LONG`, and else.
const FULL: usize = 30;
const SMALL: usize = 2;
/// Fleets side by side: each boots one VM after another.
const FLEETS: usize = 2;

/// A tick of the script or of the after_script, at which the agent dies.
fn tick(draw: &mut Draw) -> Point {
    let (variant, ticks) = match draw.below(3) {
        0 => ("after_script", TICKS / 4),
        _ => ("script", TICKS),
    };
    Point {
        victim: Victim::Agent,
        core: "",
        kind: "Tick",
        variant,
        boundary: "",
        nth: u32::try_from(draw.below(u64::from(ticks))).unwrap(),
    }
}

/// Every moment that a job which goes through to its end comes to.
fn all() -> Vec<(Point, Story)> {
    point::all()
        .into_iter()
        .filter_map(|point| Some((point, story::of(&point).ok()?)))
        .filter(|(_, story)| matches!(story, Story::Plain | Story::Started))
        .collect()
}

fn drawn(seed: u64, count: usize) -> Vec<(Point, Story)> {
    let mut draw = Draw::of(seed);
    let all = all();
    let victims = VICTIMS.into_iter().cycle().take(count);
    victims
        .map(|victim| {
            if victim == Victim::Agent {
                return (tick(&mut draw), Story::Plain);
            }
            let mine: Vec<_> = all.iter().filter(|(of, _)| of.victim == victim).collect();
            let count = u64::try_from(mine.len()).unwrap();
            *mine[usize::try_from(draw.below(count)).unwrap()]
        })
        .collect()
}

/// FAIL-22, FAIL-32, FAIL-34, STATE-04
#[test]
fn under_real_vms_whoever_dies_the_job_ends_as_it_must_and_nothing_is_left() {
    let Some(root) = test_root("kills with real VMs") else {
        return;
    };
    let seed = std::env::var("VK_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let is_long = std::env::var_os("VK_LONG").is_some();
    let points = match std::env::var("VK_KILLS_ONLY") {
        Ok(only) => {
            let is_asked =
                |point: &Point| format!("{} {point}", point.victim.name()).contains(&only);
            all()
                .into_iter()
                .filter(|(point, _)| is_asked(point))
                .collect()
        }
        Err(_) => drawn(seed, if is_long { FULL } else { SMALL }),
    };
    println!("{} kills with real VMs, seed {seed}", points.len());
    let each = points.len().div_ceil(FLEETS).max(1);
    let chunks = points
        .chunks(each)
        .map(|chunk| (House::Machines, chunk.to_vec()));
    super::tell_chunks(&root, chunks.collect(), FLEETS, &[]);
}

#[test]
fn what_is_drawn_follows_from_the_seed_and_every_victim_dies_as_often_as_any() {
    let drawn = drawn(3, FULL);
    assert_eq!(drawn, self::drawn(3, FULL));
    for victim in VICTIMS {
        let count = drawn.iter().filter(|(point, _)| point.victim == victim);
        assert_eq!(count.count(), FULL / VICTIMS.len(), "{victim:?}");
    }
}
