//! Steps among overlapping occurrences, remembered.
//!
//! What a byte decides depends on where the undecided occurrences lie before it, and on nothing
//! else: not on where in the stream that is. So where text repeats itself, the same steps come
//! again and again, and a table answers for them.

use std::collections::HashMap;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};

use super::held::Window;
use super::overlap::{Overlaps, Reached};
use super::settle;
use crate::search::PatternSet;
use crate::sink::Sink;

/// How many situations are known at most, and how many steps out of them.
const MAX_SITUATIONS: usize = 4096;
const MAX_MOVES: usize = 1 << 16;
/// Occurrences in a situation beyond which it is not worth knowing.
const MAX_OCCURRENCES: usize = 64;
/// How many steps may be new before most of them have to be known.
const TRIED: usize = 1024;
/// For how many bytes the table is left alone where it did not help: twice as many each time.
const FIRST_REST: u64 = 64 << 10;
const LAST_REST: u64 = 16 << 20;

/// Where a search stands, by distances from the byte last read.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Situation {
    state: StateID,
    /// How many bytes behind the last mask were read, as far as that matters.
    room: u64,
    overlaps: Overlaps,
}

/// What a byte leads to from a situation.
#[derive(Clone, Copy)]
struct Move {
    /// Where the row of the situation begins that follows.
    to: u32,
    /// 0, or the number of what happens besides.
    event: u32,
}

const UNKNOWN: Move = Move {
    to: u32::MAX,
    event: 0,
};

/// What a move does but lead somewhere.
#[derive(Clone, Copy)]
struct Event {
    /// Its masks among all: the first, and behind the last.
    masks: (usize, usize),
    /// Nothing waits then, and nothing of a phrase has been read.
    leaves: bool,
}

/// One stream's table, for one set of phrases.
#[derive(Default)]
pub(super) struct Memo {
    situations: Vec<Situation>,
    rows: HashMap<Situation, u32>,
    /// For each situation a row with a move for each class of bytes.
    moves: Vec<Move>,
    events: Vec<Event>,
    /// Starts and ends of masks, by their distance from the byte that decides them.
    masks: Vec<(u64, u64)>,
    rests_until: u64,
    rested: u64,
    decided: Vec<(u64, u64)>,
}

impl Memo {
    /// Whether the table is to be asked at a position.
    pub(super) fn is_awake(&self, at: u64) -> bool {
        at >= self.rests_until
    }

    /// Reads the window's text from `at` on until the search is idle, or the table does not help;
    /// returns the state and the position reached.
    pub(super) fn run(
        &mut self,
        (set, machine): (&PatternSet, &impl Automaton),
        mut state: StateID,
        mut at: usize,
        overlaps: &mut Overlaps,
        window: &mut Window<'_>,
        sink: &mut impl Sink,
    ) -> (StateID, usize) {
        let (text, from) = (window.chunk(), window.chunk_from());
        let (first, mut misses) = (at, 0);
        let here = Reached {
            at: from + at as u64,
            state,
        };
        let mut row = self.row(set, here, overlaps, window);
        while let Some(known) = row {
            let rest = text.get(at..).unwrap_or_default();
            let (reached, to) = self.follow(set, known, rest, |after, masks| {
                pass(masks, from + (at + after) as u64, window, sink);
            });
            at += reached;
            if let Some(situation) = self.situations.get(to as usize / set.classes()) {
                state = situation.state;
                *overlaps = situation.overlaps.mirrored(from + at as u64);
            }
            let goes_on = !(overlaps.is_idle() && state == set.start());
            let Some(byte) = text.get(at).filter(|_| goes_on) else {
                return (state, at);
            };
            misses += 1;
            if misses * 4 > at - first + TRIED {
                break;
            }
            state = machine.next_state(Anchored::No, state, *byte);
            at += 1;
            let here = Reached {
                at: from + at as u64,
                state,
            };
            let mut decided = std::mem::take(&mut self.decided);
            settle(set, machine, here, overlaps, window.base(), &mut decided);
            for mask in &mut decided {
                *mask = (here.at - mask.0, here.at - mask.1);
            }
            pass(&decided, here.at, window, sink);
            row = self.row(set, here, overlaps, window);
            let leaves = overlaps.is_idle() && state == set.start();
            self.learn((set, to, *byte), row, &decided, leaves);
            decided.clear();
            self.decided = decided;
        }
        // Of little use here: too much that is new.
        self.forget();
        self.rested = (self.rested * 2).clamp(FIRST_REST, LAST_REST);
        self.rests_until = from + at as u64 + self.rested;
        (state, at)
    }

    /// Goes by the table as far as it knows the way, or to where the search is idle; returns how
    /// many bytes that are, and the row of the situation then.
    #[inline]
    fn follow(
        &self,
        set: &PatternSet,
        mut row: u32,
        text: &[u8],
        mut masked: impl FnMut(usize, &[(u64, u64)]),
    ) -> (usize, u32) {
        for (nth, byte) in text.iter().enumerate() {
            let step = self.moves.get(row as usize + set.class(*byte));
            let step = step.copied().unwrap_or(UNKNOWN);
            if step.to == u32::MAX {
                return (nth, row);
            }
            row = step.to;
            if step.event > 0
                && let Some(event) = self.events.get(step.event as usize - 1)
            {
                let masks = self.masks.get(event.masks.0..event.masks.1);
                masked(nth + 1, masks.unwrap_or_default());
                if event.leaves {
                    return (nth + 1, row);
                }
            }
        }
        (text.len(), row)
    }

    /// The row of the situation at hand; `None` where it is not worth one.
    fn row(
        &mut self,
        set: &PatternSet,
        here: Reached,
        overlaps: &Overlaps,
        window: &Window<'_>,
    ) -> Option<u32> {
        if overlaps.len() > MAX_OCCURRENCES {
            return None;
        }
        let situation = Situation {
            state: here.state,
            room: here.at.saturating_sub(window.base()).min(set.longest()),
            overlaps: overlaps.mirrored(here.at),
        };
        if let Some(row) = self.rows.get(&situation) {
            return Some(*row);
        }
        let width = set.classes();
        if self.situations.len() >= MAX_SITUATIONS.min(MAX_MOVES / width) {
            return None;
        }
        let row = u32::try_from(self.moves.len()).ok()?;
        self.situations.push(situation.clone());
        self.rows.insert(situation, row);
        self.moves.resize(self.moves.len() + width, UNKNOWN);
        Some(row)
    }

    /// Notes where `byte` led to from the situation of a row.
    fn learn(
        &mut self,
        (set, row, byte): (&PatternSet, u32, u8),
        to: Option<u32>,
        masks: &[(u64, u64)],
        leaves: bool,
    ) {
        let step = self.moves.get_mut(row as usize + set.class(byte));
        let (Some(to), Some(step)) = (to, step) else {
            return;
        };
        let first = self.masks.len();
        self.masks.extend_from_slice(masks);
        step.to = to;
        if leaves || !masks.is_empty() {
            self.events.push(Event {
                masks: (first, self.masks.len()),
                leaves,
            });
            step.event = u32::try_from(self.events.len()).unwrap_or_default();
        }
    }

    fn forget(&mut self) {
        self.situations.clear();
        self.rows.clear();
        self.moves.clear();
        self.events.clear();
        self.masks.clear();
    }
}

/// Passes on masks that lie as far before `read` as they say, and what stands before them.
#[inline]
fn pass(masks: &[(u64, u64)], read: u64, window: &mut Window<'_>, sink: &mut impl Sink) {
    for (start, end) in masks {
        window.pass(read - start, sink);
        window.mask(read - end, sink);
    }
}
