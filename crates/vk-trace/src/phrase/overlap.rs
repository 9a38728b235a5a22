//! Which of several overlapping occurrences are masked.
//!
//! The rule is that of one pass for each phrase, longest phrase first, each replacing from left to
//! right what earlier passes left (STAGE-25): an occurrence is masked if it overlaps none that goes
//! before it, by rank and then by position. Here the passes run at once, over a stream, so an
//! occurrence can also be undecided: one that goes before it may still be on its way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use aho_corasick::automaton::StateID;

use crate::search::PatternSet;

/// Undecided occurrences beyond which a decision is tried without waiting for all to be seen.
const CROWD: usize = 64;

/// An occurrence: the longest phrase that ends at `end`, and by `state` all shorter ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    rank: u32,
    start: u64,
    end: u64,
    state: StateID,
}

/// What is decided, and what is not.
#[derive(Debug, Default)]
pub(crate) struct Overlaps {
    undecided: Vec<Found>,
    /// Decided, not passed on: start and end, none overlapping another.
    masked: BTreeMap<u64, u64>,
    last_end: u64,
    crowd: usize,
}

impl Overlaps {
    /// Whether nothing waits for a decision or for being passed on.
    pub(crate) fn is_idle(&self) -> bool {
        self.undecided.is_empty() && self.masked.is_empty()
    }

    /// Takes the phrases that end at `end`, but for those that begin before `base`: what lies
    /// there was passed on.
    pub(crate) fn found(&mut self, set: &PatternSet, state: StateID, end: u64, base: u64) {
        if let Some((rank, len)) = set.best_match(state, end.saturating_sub(base), |_, _| true) {
            self.undecided.push(Found {
                rank,
                start: end - len,
                end,
                state,
            });
            self.last_end = end;
        }
    }

    /// Whether a decision is worth trying when no occurrence that is still unseen can begin before
    /// `safe`.
    pub(crate) fn is_ripe(&self, safe: u64) -> bool {
        !self.undecided.is_empty()
            && (safe >= self.last_end || self.undecided.len() >= self.crowd.max(CROWD))
    }

    /// Decides what can be decided; returns the position before which all is decided.
    pub(crate) fn decide(&mut self, set: &PatternSet, safe: u64) -> u64 {
        if self.masked.is_empty()
            && let [only] = self.undecided.as_slice()
            && (only.end <= safe || only.rank == 0)
        {
            self.masked.insert(only.start, only.end);
            self.undecided.clear();
            return safe;
        }
        let mut queue: BinaryHeap<Reverse<Found>> = self.undecided.drain(..).map(Reverse).collect();
        let mut blocked = BTreeMap::new();
        while let Some(Reverse(found)) = queue.pop() {
            if let Some((_, end)) = last_overlap(&self.masked, found.start, found.end) {
                // A shorter phrase may stand between that mask and the end.
                let room = found.end.saturating_sub(end);
                let shorter = set.best_match(found.state, room, |rank, _| rank > found.rank);
                queue.extend(shorter.map(|(rank, len)| {
                    Reverse(Found {
                        rank,
                        start: found.end - len,
                        ..found
                    })
                }));
            } else if last_overlap(&blocked, found.start, found.end).is_some()
                || (found.end > safe && found.rank > 0)
            {
                block(&mut blocked, found.start, found.end);
                self.undecided.push(found);
            } else {
                self.masked.insert(found.start, found.end);
            }
        }
        self.last_end = self
            .undecided
            .iter()
            .map(|found| found.end)
            .max()
            .unwrap_or(0);
        self.crowd = self.undecided.len() * 2;
        blocked
            .first_key_value()
            .map_or(safe, |(start, _)| safe.min(*start))
    }

    /// The next decided occurrence that begins at `frontier` or before, in order.
    pub(crate) fn next_masked(&mut self, frontier: u64) -> Option<(u64, u64)> {
        let entry = self
            .masked
            .first_entry()
            .filter(|entry| *entry.key() <= frontier)?;
        Some(entry.remove_entry())
    }

    /// Forgets everything: the bytes are going to be read again.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The last range of `ranges`, which do not overlap, that overlaps `start..end`.
fn last_overlap(ranges: &BTreeMap<u64, u64>, start: u64, end: u64) -> Option<(u64, u64)> {
    let (from, to) = ranges.range(..end).next_back()?;
    (*to > start).then_some((*from, *to))
}

/// Adds `start..end` to `ranges`, joined with those it overlaps.
fn block(ranges: &mut BTreeMap<u64, u64>, mut start: u64, mut end: u64) {
    while let Some((from, to)) = last_overlap(ranges, start, end) {
        ranges.remove(&from);
        start = start.min(from);
        end = end.max(to);
    }
    ranges.insert(start, end);
}
