//! The search for many patterns at once, shared by phrases and token prefixes.
//!
//! An Aho-Corasick automaton knows, after every byte, the longest suffix of what was read that
//! begins a pattern: so no occurrence is missed, whatever came before it and however the stream was
//! cut. A vectorized search for the patterns' first bytes skips text in which none can begin.

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::{contiguous, noncontiguous};
use aho_corasick::{Anchored, BuildError, MatchKind, Span, dfa, packed};

use crate::TraceError;

/// A full table is built for patterns up to this many bytes in sum, above it a compact automaton:
/// building the table of a pattern that repeats itself takes time by the square of its length.
const TABLE_PATTERN_BYTES: usize = 4096;
/// A full table may have this many bytes, so that what is used of it stays in the caches.
const TABLE_BYTES: usize = 2 << 20;
/// How many first bytes of a pattern the vectorized search looks for: more make false alarms
/// rarer, and the tail of each write that the automaton must read longer.
const FIRST_BYTES: usize = 8;
/// The vectorized search is not worth its start for less text than this.
const SHORT: usize = 24;

pub(crate) enum Machine {
    Table(dfa::DFA),
    Compact(contiguous::NFA),
}

/// Patterns compiled for search. A pattern's number is its rank: 0 is the longest, and of equally
/// long ones the last in byte order.
pub(crate) struct PatternSet {
    pub(crate) machine: Machine,
    start: StateID,
    lens: Vec<u32>,
    /// Length of the pattern prefix that each state stands for, by the state's number shifted.
    depths: Vec<u32>,
    shift: u32,
    firsts: Option<packed::Searcher>,
    /// A pattern that begins this close to the end of a text may escape the vectorized search.
    blind_tail: usize,
}

/// Runs an expression with the automaton under its own type, so that its steps are inlined.
macro_rules! with_machine {
    ($set:expr, $machine:ident => $body:expr) => {
        match &$set.machine {
            $crate::search::Machine::Table($machine) => $body,
            $crate::search::Machine::Compact($machine) => $body,
        }
    };
}
pub(crate) use with_machine;

impl PatternSet {
    /// Compiles `patterns`; empty ones and repetitions do not count.
    pub(crate) fn new<P: AsRef<[u8]>>(patterns: &[P]) -> Result<Self, TraceError> {
        let mut patterns: Vec<&[u8]> = patterns.iter().map(AsRef::as_ref).collect();
        patterns.retain(|pattern| !pattern.is_empty());
        patterns.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| b.cmp(a)));
        patterns.dedup();
        let machine = build(&patterns).map_err(|source| TraceError::Build {
            patterns: patterns.len(),
            source,
        })?;
        let (firsts, blind_tail) = vectorized(&patterns);
        let mut set = Self {
            machine,
            start: StateID::default(),
            lens: patterns
                .iter()
                .map(|pattern| clamp(pattern.len()))
                .collect(),
            depths: Vec::new(),
            shift: 0,
            firsts,
            blind_tail,
        };
        let (start, states) = with_machine!(set, machine => walk(machine, &patterns));
        set.start = start;
        set.learn_depths(&states);
        Ok(set)
    }

    fn learn_depths(&mut self, states: &[(StateID, u32)]) {
        let ids = || states.iter().map(|(state, _)| state.as_usize());
        self.shift = ids()
            .fold(0, |all, id| all | id)
            .trailing_zeros()
            .min(usize::BITS - 1);
        let last = ids().max().unwrap_or(0) >> self.shift;
        self.depths = vec![0; last + 1];
        for (state, depth) in states {
            if let Some(slot) = self.depths.get_mut(state.as_usize() >> self.shift) {
                *slot = *depth;
            }
        }
    }

    /// The state in which nothing of a pattern has been read.
    pub(crate) fn start(&self) -> StateID {
        self.start
    }

    /// Length of the longest suffix of what was read that begins a pattern (or is a whole one).
    pub(crate) fn depth(&self, state: StateID) -> u64 {
        self.depths
            .get(state.as_usize() >> self.shift)
            .copied()
            .unwrap_or(0)
            .into()
    }

    /// The lowest rank that is a suffix of what was read, is at most `room` bytes long and passes
    /// `wanted`, with its length.
    pub(crate) fn best_match(
        &self,
        state: StateID,
        room: u64,
        wanted: impl Fn(u32, u64) -> bool,
    ) -> Option<(u32, u64)> {
        with_machine!(self, machine => (0..machine.match_len(state))
            .map(|nth| machine.match_pattern(state, nth).as_u32())
            .map(|rank| (rank, self.len_of(rank)))
            .filter(|&(rank, len)| len <= room && wanted(rank, len))
            .min())
    }

    fn len_of(&self, rank: u32) -> u64 {
        let len = usize::try_from(rank)
            .ok()
            .and_then(|rank| self.lens.get(rank));
        len.copied().unwrap_or(u32::MAX).into()
    }

    /// Where reading has to start, from `from` on: no pattern begins in the text before it.
    pub(crate) fn skip(&self, text: &[u8], from: usize) -> usize {
        if self.lens.is_empty() {
            return text.len();
        }
        let rest = text.len().saturating_sub(from);
        let Some(firsts) = self.firsts.as_ref().filter(|_| rest >= SHORT) else {
            return from;
        };
        let blind = text.len().saturating_sub(self.blind_tail).max(from);
        let found = firsts.find_in(
            text,
            Span {
                start: from,
                end: text.len(),
            },
        );
        // Before a short pattern in the tail, a longer one may begin that the text does not end.
        found.map_or(blind, |found| found.start().min(blind))
    }
}

/// When to leave the automaton for the vectorized search: at once where alarms are rare, later and
/// later where they are not, so that neither dense text pays for a start of the search every few
/// bytes, nor sparse text for the automaton.
#[derive(Default)]
pub(crate) struct Patience {
    burst: usize,
    until: usize,
}

impl Patience {
    /// The search skipped from `from` to `to`.
    pub(crate) fn skipped(&mut self, from: usize, to: usize) {
        self.burst = if to - from >= 64 {
            0
        } else {
            (self.burst * 2).clamp(32, 4096)
        };
        self.until = to + self.burst;
    }

    /// Whether the automaton, idle at `at`, should go on reading.
    pub(crate) fn goes_on(&self, at: usize) -> bool {
        at < self.until
    }
}

fn build(patterns: &[&[u8]]) -> Result<Machine, BuildError> {
    let machine = noncontiguous::Builder::new()
        .match_kind(MatchKind::Standard)
        .prefilter(false)
        .build(patterns)?;
    let bytes: usize = patterns.iter().map(|pattern| pattern.len()).sum();
    let mut seen = [false; 256];
    for byte in patterns.iter().copied().flatten() {
        if let Some(seen) = seen.get_mut(usize::from(*byte)) {
            *seen = true;
        }
    }
    let classes = (seen.iter().filter(|seen| **seen).count() + 1).next_power_of_two();
    if bytes <= TABLE_PATTERN_BYTES && (bytes + 3) * classes * 4 <= TABLE_BYTES {
        let builder = dfa::Builder::new();
        builder
            .build_from_noncontiguous(&machine)
            .map(Machine::Table)
    } else {
        let builder = contiguous::Builder::new();
        builder
            .build_from_noncontiguous(&machine)
            .map(Machine::Compact)
    }
}

fn vectorized(patterns: &[&[u8]]) -> (Option<packed::Searcher>, usize) {
    let first = |pattern: &'_ [u8]| {
        pattern
            .iter()
            .copied()
            .take(FIRST_BYTES)
            .collect::<Vec<u8>>()
    };
    let mut firsts: Vec<Vec<u8>> = patterns.iter().map(|pattern| first(pattern)).collect();
    firsts.sort_unstable();
    firsts.dedup();
    let longest = firsts.iter().map(Vec::len).max().unwrap_or(1);
    (packed::Searcher::new(firsts), longest - 1)
}

/// The start state, and the state of every prefix of every pattern with the prefix's length.
fn walk(machine: &impl Automaton, patterns: &[&[u8]]) -> (StateID, Vec<(StateID, u32)>) {
    let start = machine.start_state(Anchored::No).unwrap_or_default();
    let mut states = vec![(start, 0)];
    for pattern in patterns {
        let mut state = start;
        for (depth, byte) in (1..).zip(pattern.iter()) {
            state = machine.next_state(Anchored::No, state, *byte);
            states.push((state, depth));
        }
    }
    (start, states)
}

fn clamp(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &PatternSet, text: &[u8]) -> StateID {
        with_machine!(set, machine => text.iter().fold(set.start(), |state, byte| {
            machine.next_state(Anchored::No, state, *byte)
        }))
    }

    #[test]
    fn ranks_go_by_length_then_backwards_by_bytes() {
        let set = PatternSet::new(&["ab", "", "abc", "zz", "ab"]).unwrap();
        assert_eq!(set.lens, [3, 2, 2]);
        assert_eq!(
            set.best_match(read(&set, b"abc"), 9, |_, _| true),
            Some((0, 3))
        );
        assert_eq!(
            set.best_match(read(&set, b"zz"), 9, |_, _| true),
            Some((1, 2))
        );
        assert_eq!(
            set.best_match(read(&set, b"ab"), 9, |_, _| true),
            Some((2, 2))
        );
        let none = PatternSet::new(&[""]).unwrap();
        assert_eq!(none.skip(b"anything", 3), 8);
    }

    #[test]
    fn depth_is_that_of_the_longest_suffix_that_begins_a_pattern() {
        let long = "x".repeat(9000);
        for patterns in [&["aab", "abac"][..], &["aab", "abac", &long]] {
            let set = PatternSet::new(patterns).unwrap();
            let depth = |text: &str| set.depth(read(&set, text.as_bytes()));
            assert_eq!(depth(""), 0);
            assert_eq!(depth("aaaa"), 2);
            assert_eq!(depth("aabac"), 4);
            assert_eq!(depth("aabab"), 2);
            assert_eq!(depth("q"), 0);
        }
    }

    #[test]
    fn nested_matches_are_found_within_the_room_left() {
        let set = PatternSet::new(&["a", "aa", "aaa"]).unwrap();
        let state = read(&set, b"baaa");
        assert_eq!(set.best_match(state, 9, |_, _| true), Some((0, 3)));
        assert_eq!(set.best_match(state, 2, |_, _| true), Some((1, 2)));
        assert_eq!(set.best_match(state, 9, |rank, _| rank > 1), Some((2, 1)));
        assert_eq!(set.best_match(state, 0, |_, _| true), None);
    }

    #[test]
    fn skipping_never_passes_a_pattern() {
        let set = PatternSet::new(&["needle in hay", "pin"]).unwrap();
        let mut text = vec![b'.'; 300];
        assert_eq!(set.skip(&text, 0), 300 - 7);
        text.extend_from_slice(b"needle i");
        assert_eq!(set.skip(&text, 10), 300);
        text.truncate(307);
        assert!(set.skip(&text, 10) <= 300);
        assert_eq!(set.skip(b"short pin", 2), 2);
        let set = PatternSet::new(&["abab", "b"]).unwrap();
        let text = [&[b'.'; 60][..], b"ab"].concat();
        assert!(set.skip(&text, 0) <= 60);
    }
}
