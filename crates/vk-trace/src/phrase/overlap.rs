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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Found {
    rank: u32,
    start: u64,
    end: u64,
    state: StateID,
}

impl Found {
    /// The longest shorter phrase with the same end that fits behind a mask which ends at `end`.
    fn behind(self, set: &PatternSet, end: u64) -> Option<Self> {
        let room = self.end.saturating_sub(end);
        let (rank, len) = set.best_match(self.state, room, |rank, _| rank > self.rank)?;
        Some(Self {
            rank,
            start: self.end - len,
            ..self
        })
    }
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Overlaps {
    /// In the order of their ends.
    undecided: VecDeque<Found>,
    /// The first of them waits for another.
    stuck: bool,
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

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.undecided.len() + self.masked.len()
    }

    /// The same with each position `p` as `at - p`, and so also the way back.
    pub(crate) fn mirrored(&self, at: u64) -> Self {
        let undecided = self.undecided.iter().map(|found| Found {
            start: at - found.start,
            end: at - found.end,
            ..*found
        });
        let masked = self.masked.iter();
        Self {
            undecided: undecided.collect(),
            masked: masked.map(|(start, end)| (at - start, at - end)).collect(),
            // Without an undecided one it says nothing.
            last_end: if self.undecided.is_empty() {
                0
            } else {
                at - self.last_end
            },
            ..*self
        }
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
        self.undecided.push_back(Found {
            rank,
            start: end - len,
            end,
            state,
        });
        self.last_end = end;
        None
    }

    /// Masks the first occurrence, or the one that stands against it, if nothing stands against
    /// that; returns its start and end. Nothing before it waits for a decision then.
    pub(crate) fn settle_first(
        &mut self,
        set: &PatternSet,
        reached: Reached,
    ) -> Option<(u64, u64)> {
        let first = *self
            .undecided
            .front()
            .filter(|_| !self.stuck && self.masked.is_empty())?;
        if has_rival(set, reached, &first) {
            return None;
        }
        if self.undecided.len() == 1 {
            self.undecided.clear();
            return Some((first.start, first.end));
        }
        let mut best = first;
        while let Some(better) = self.better(&best) {
            best = better;
        }
        self.stuck = best.start >= first.end;
        if self.stuck || (best != first && has_rival(set, reached, &best)) {
            return None;
        }
        self.undecided.retain_mut(|found| {
            if found.start >= best.end {
                return true;
            }
            let shorter = found.behind(set, best.end);
            *found = shorter.unwrap_or(*found);
            shorter.is_some()
        });
        self.last_end = self.undecided.back().map_or(0, |found| found.end);
        Some((best.start, best.end))
    }

    /// Of those that overlap `found`, the one that goes before all, if it goes before `found`.
    fn better(&self, found: &Found) -> Option<Found> {
        let overlaps = |other: &&Found| other.start < found.end && other.end > found.start;
        self.undecided
            .iter()
            .filter(overlaps)
            .min()
            .filter(|best| *best < found)
            .copied()
    }

    /// Whether deciding about all is worth trying: all that matters was seen, or much has piled up.
    pub(crate) fn is_ripe(&self, set: &PatternSet, reached: Reached) -> bool {
        self.undecided.is_empty()
            || reached.safe(set) >= self.last_end
            || self.undecided.len() >= self.crowd.max(CROWD)
    }

    /// Decides what can be decided; returns the position before which all is decided.
    pub(crate) fn decide(&mut self, set: &PatternSet, reached: Reached) -> u64 {
        let mut found = Vec::from(std::mem::take(&mut self.undecided));
        found.sort_unstable_by(|a, b| b.cmp(a));
        let mut shortened = BinaryHeap::new();
        let mut blocked = VecDeque::new();
        while let Some(next) = next_in_order(&mut found, &mut shortened) {
            if let Some((_, end)) = last_overlap(&self.masked, next.start, next.end) {
                shortened.extend(next.behind(set, end).map(Reverse));
            } else if last_overlap(&blocked, next.start, next.end).is_some()
                || has_rival(set, reached, &next)
            {
                block(&mut blocked, next.start, next.end);
                self.undecided.push_back(next);
            } else {
                insert(&mut self.masked, next.start, next.end);
            }
        }
        self.undecided
            .make_contiguous()
            .sort_unstable_by_key(|found| found.end);
        self.stuck = false;
        self.last_end = self.undecided.back().map_or(0, |found| found.end);
        let twice = self.undecided.len() * 2;
        self.crowd = if twice > CROWD { twice } else { 0 };
        let safe = reached.safe(set);
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
