//! Which of several overlapping occurrences are masked.
//!
//! The rule is that of one pass for each phrase, longest phrase first, each replacing from left to
//! right what earlier passes left (STAGE-25): an occurrence is masked if it overlaps none that goes
//! before it, by rank and then by position. Here the passes run at once, over a stream, so an
//! occurrence can also be undecided: one that goes before it may still be on its way.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use aho_corasick::automaton::StateID;

use crate::search::PatternSet;

/// Undecided occurrences beyond which a decision is tried without waiting for all to be seen.
const CROWD: usize = 32;

/// An occurrence: the longest phrase that ends at `end`, and by `state` all shorter ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    rank: u32,
    start: u64,
    end: u64,
    state: StateID,
}

/// How far a stream was read, and the automaton's state there.
#[derive(Clone, Copy)]
pub(crate) struct Reached {
    pub(crate) at: u64,
    pub(crate) state: StateID,
}

impl Reached {
    /// No occurrence that is still unseen begins before this position.
    pub(crate) fn safe(self, set: &PatternSet) -> u64 {
        self.at - set.depth(self.state).min(self.at)
    }
}

/// What is decided, and what is not.
#[derive(Debug, Default)]
pub(crate) struct Overlaps {
    undecided: Vec<Found>,
    /// Decided, not passed on: start and end, in order, none overlapping another.
    masked: VecDeque<(u64, u64)>,
    last_end: u64,
    crowd: usize,
}

impl Overlaps {
    /// Whether nothing waits for a decision or for being passed on.
    pub(crate) fn is_idle(&self) -> bool {
        self.undecided.is_empty() && self.masked.is_empty()
    }

    /// Takes the phrases that end where the stream was read to, but for those that begin before
    /// `base`: what lies there was passed on. Returns the start of one that is masked at once:
    /// nothing stands against it, seen or unseen.
    pub(crate) fn found(&mut self, set: &PatternSet, reached: Reached, base: u64) -> Option<u64> {
        let Reached { at: end, state } = reached;
        let (rank, len) = set.best_match(state, end.saturating_sub(base), |_, _| true)?;
        if self.is_idle() && set.rival_depth(state, rank) == 0 {
            return Some(end - len);
        }
        self.undecided.push(Found {
            rank,
            start: end - len,
            end,
            state,
        });
        self.last_end = end;
        None
    }

    /// Whether a decision is worth trying: all that matters was seen, or much has piled up.
    pub(crate) fn is_ripe(&self, set: &PatternSet, reached: Reached) -> bool {
        reached.safe(set) >= self.last_end || self.undecided.len() >= self.crowd.max(CROWD)
    }

    /// Decides what can be decided; returns the position before which all is decided.
    pub(crate) fn decide(&mut self, set: &PatternSet, reached: Reached) -> u64 {
        let safe = reached.safe(set);
        if self.masked.is_empty()
            && let [only] = self.undecided.as_slice()
            && !has_rival(set, reached, only)
        {
            self.masked.push_back((only.start, only.end));
            self.undecided.clear();
            return safe;
        }
        let mut found = std::mem::take(&mut self.undecided);
        found.sort_unstable_by(|a, b| b.cmp(a));
        let mut shortened = BinaryHeap::new();
        let mut blocked = VecDeque::new();
        while let Some(next) = next_in_order(&mut found, &mut shortened) {
            if let Some((_, end)) = last_overlap(&self.masked, next.start, next.end) {
                // A shorter phrase may stand between that mask and the end.
                let room = next.end.saturating_sub(end);
                let shorter = set.best_match(next.state, room, |rank, _| rank > next.rank);
                shortened.extend(shorter.map(|(rank, len)| {
                    Reverse(Found {
                        rank,
                        start: next.end - len,
                        ..next
                    })
                }));
            } else if last_overlap(&blocked, next.start, next.end).is_some()
                || has_rival(set, reached, &next)
            {
                block(&mut blocked, next.start, next.end);
                self.undecided.push(next);
            } else {
                insert(&mut self.masked, next.start, next.end);
            }
        }
        self.last_end = self
            .undecided
            .iter()
            .map(|found| found.end)
            .max()
            .unwrap_or(0);
        self.crowd = self.undecided.len() * 2;
        blocked.front().map_or(safe, |(start, _)| safe.min(*start))
    }

    /// The next decided occurrence that begins at `frontier` or before, in order.
    pub(crate) fn next_masked(&mut self, frontier: u64) -> Option<(u64, u64)> {
        let ready = self
            .masked
            .front()
            .is_some_and(|(start, _)| *start <= frontier);
        if ready { self.masked.pop_front() } else { None }
    }

    /// Forgets everything: the bytes are going to be read again.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Whether an occurrence that goes before `found` and overlaps it may still be unseen.
fn has_rival(set: &PatternSet, reached: Reached, found: &Found) -> bool {
    found.end + set.rival_depth(reached.state, found.rank) > reached.at
}

/// The next of `found`, which has the first at its end, and of `shortened`.
fn next_in_order(
    found: &mut Vec<Found>,
    shortened: &mut BinaryHeap<Reverse<Found>>,
) -> Option<Found> {
    let first_shortened = shortened.peek().map(|Reverse(first)| *first);
    match (found.last(), first_shortened) {
        (Some(first), Some(short)) if short < *first => shortened.pop().map(|Reverse(it)| it),
        (None, Some(_)) => shortened.pop().map(|Reverse(it)| it),
        _ => found.pop(),
    }
}

/// Ranges in order, none overlapping another.
type Ranges = VecDeque<(u64, u64)>;

/// The last of `ranges` that overlaps `start..end`.
fn last_overlap(ranges: &Ranges, start: u64, end: u64) -> Option<(u64, u64)> {
    let before = ranges.partition_point(|(from, _)| *from < end);
    let range = ranges.get(before.checked_sub(1)?)?;
    (range.1 > start).then_some(*range)
}

fn insert(ranges: &mut Ranges, start: u64, end: u64) {
    let before = ranges.partition_point(|(from, _)| *from < start);
    ranges.insert(before, (start, end));
}

/// Adds `start..end` to `ranges`, joined with those it overlaps.
fn block(ranges: &mut Ranges, mut start: u64, mut end: u64) {
    while let Some((from, to)) = last_overlap(ranges, start, end) {
        let before = ranges.partition_point(|(other, _)| *other < from);
        ranges.remove(before);
        start = start.min(from);
        end = end.max(to);
    }
    insert(ranges, start, end);
}
