//! What is drawn by seed: where the daemon dies next, and what each job is like.

use super::super::table::point::{self, Point, Victim};

/// What no job of a storm leads to: a lease's third, an operator's word, a drain, a hub that is away.
const ELSEWHERE: [(&str, &str); 11] = [
    ("acquire", "Note"),
    ("acquire", "Renew"),
    ("acquire", "Release"),
    ("acquire", "PassSlot"),
    ("acquire", "Drained"),
    ("job", "Refused"),
    ("job", "Abandoned"),
    ("job", "Release"),
    // Closing lines of the daemon's own: of a job that no node has taken.
    ("job", "Suffix"),
    ("job", "RenderSuffix"),
    ("job", "Closing"),
];

/// What a daemon does as it starts, and hardly later.
const AT_ITS_START: [&str; 3] = ["DrawRequestIds", "State", "Verify"];

/// A source of numbers that are the same for the same seed (splitmix64).
pub(crate) struct Draw(u64);

/// How a job goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// To its end.
    Succeeds,
    /// The same, with more output than one patch carries.
    Floods,
    /// Its script fails with this.
    Fails(u64),
    /// Somebody asks for its cancel in its middle.
    Canceled,
    /// Somebody cancels it and waits for nobody.
    Dropped,
}

impl Draw {
    pub(crate) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A moment for the daemon to die at: each variant and boundary as likely as any other, the first
    /// time it is come to more likely than the second, and so on. A daemon that `runs` already has its
    /// start behind it.
    pub(super) fn moment(&mut self, of: &[Point], runs: bool) -> (Point, u32) {
        let point = loop {
            let count = u64::try_from(of.len()).unwrap();
            let point = of[usize::try_from(self.below(count)).unwrap()];
            if !runs || !AT_ITS_START.contains(&point.variant) {
                break point;
            }
        };
        // Of calls that are made all the time one later than the first is as good.
        let often = [
            "Fetch",
            "View",
            "Patch",
            "Update",
            "Note",
            "AskCapacity",
            "Reserve",
        ];
        let nth = if often.contains(&point.variant) {
            1 + self.next().trailing_ones().min(3)
        } else {
            1 + u32::from(self.below(5) == 0)
        };
        match way_to(point.variant) {
            // Of few jobs: the first one will do.
            Some(_) => (point, 1),
            None => (point, nth),
        }
    }

    pub(super) fn way(&mut self) -> Way {
        match self.below(20) {
            0..=2 => Way::Fails(1 + self.below(99)),
            3..=4 => Way::Canceled,
            5 => Way::Dropped,
            6..=7 => Way::Floods,
            _ => Way::Succeeds,
        }
    }
}

/// The way that a job has to go so that a variant comes, where only one leads to it.
pub(super) fn way_to(variant: &str) -> Option<Way> {
    matches!(variant, "GivenUp" | "Cancel").then_some(Way::Dropped)
}

/// All moments of the daemon that a storm comes to.
pub(super) fn points() -> Vec<Point> {
    let is_here = |point: &Point| {
        let name = (point.core, point.variant);
        point.victim == Victim::Daemon && !ELSEWHERE.contains(&name)
    };
    point::all().into_iter().filter(is_here).collect()
}

#[test]
fn what_is_drawn_follows_from_the_seed_and_every_moment_is_drawn() {
    let points = points();
    let drawn = |seed| {
        let mut draw = Draw::of(seed);
        (0..5000)
            .map(|_| draw.moment(&points, false))
            .collect::<Vec<_>>()
    };
    assert_eq!(drawn(7), drawn(7));
    assert_ne!(drawn(7), drawn(8));
    let all = drawn(7);
    for point in &points {
        assert!(all.iter().any(|(one, _)| one == point), "{point}");
    }
}
