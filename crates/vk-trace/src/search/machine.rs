//! Building and running the automaton; nothing here knows what is searched for.

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::{contiguous, noncontiguous};
use aho_corasick::{Anchored, BuildError, MatchKind, dfa, packed};

/// A full table is built for patterns up to this many bytes in sum, above it a compact automaton:
/// building the table of a pattern that repeats itself takes time by the square of its length.
const TABLE_PATTERN_BYTES: usize = 4096;
/// A full table may have this many bytes, so that what is used of it stays in the caches.
const TABLE_BYTES: usize = 2 << 20;
/// How many first bytes of a pattern the vectorized search looks for: more make false alarms
/// rarer, and the tail of each write that the automaton must read longer.
const FIRST_BYTES: usize = 6;
/// The automaton, in one of two forms.
pub(crate) enum Machine {
    Table(dfa::DFA),
    Compact(contiguous::NFA),
}

/// Builds the automaton of `patterns`.
pub(super) fn build(patterns: &[&[u8]]) -> Result<Machine, BuildError> {
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

/// For each byte, whether a pattern begins with it.
pub(super) fn begins(patterns: &[&[u8]]) -> Box<[bool; 256]> {
    let mut begins = Box::new([false; 256]);
    for first in patterns.iter().filter_map(|pattern| pattern.first()) {
        if let Some(begins) = begins.get_mut(usize::from(*first)) {
            *begins = true;
        }
    }
    begins
}

/// For each byte, whether it is the second of a pattern; any is where a pattern has one byte.
pub(super) fn seconds(patterns: &[&[u8]]) -> Box<[bool; 256]> {
    let any = patterns.iter().any(|pattern| pattern.len() == 1);
    let mut seconds = Box::new([any; 256]);
    for second in patterns.iter().filter_map(|pattern| pattern.get(1)) {
        if let Some(second) = seconds.get_mut(usize::from(*second)) {
            *second = true;
        }
    }
    seconds
}

/// For each byte its class, and how many there are: each byte of a pattern has one of its own, all
/// others are one.
pub(super) fn classes(patterns: &[&[u8]]) -> (Vec<u16>, usize) {
    let (mut class_of, mut count) = (vec![0; 256], 1);
    for byte in patterns.iter().copied().flatten() {
        if let Some(class @ 0) = class_of.get_mut(usize::from(*byte)) {
            *class = count;
            count += 1;
        }
    }
    (class_of, usize::from(count))
}

/// The search for the patterns' first bytes, where the processor has one, and how many bytes before
/// the end of a text a pattern may begin without being found.
pub(super) fn vectorized(patterns: &[&[u8]]) -> (Option<packed::Searcher>, usize) {
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

/// A state on the way along a pattern.
pub(super) struct Visited {
    pub(super) state: StateID,
    pub(super) depth: u32,
    pub(super) rank: u32,
    /// Whether the pattern ends here.
    pub(super) whole: bool,
    /// The state of the longest proper suffix that begins a pattern.
    pub(super) suffix: StateID,
}

/// The start state, and the state of every prefix of every pattern.
pub(super) fn walk(machine: &impl Automaton, patterns: &[&[u8]]) -> Vec<Visited> {
    let start = machine.start_state(Anchored::No).unwrap_or_default();
    let root = Visited {
        state: start,
        depth: 0,
        rank: 0,
        whole: false,
        suffix: start,
    };
    let mut states = vec![root];
    for (rank, pattern) in (0..).zip(patterns) {
        let (mut state, mut suffix) = (start, start);
        for (nth, byte) in (1_usize..).zip(pattern.iter()) {
            state = machine.next_state(Anchored::No, state, *byte);
            if nth > 1 {
                suffix = machine.next_state(Anchored::No, suffix, *byte);
            }
            let depth = u32::try_from(nth).unwrap_or(u32::MAX);
            states.push(Visited {
                state,
                depth,
                rank,
                whole: nth == pattern.len(),
                suffix,
            });
        }
    }
    states
}

/// When to leave the automaton for the vectorized search: at once where alarms are rare, later and
/// later where they are not, so that neither dense text pays for a start of the search every few
/// bytes, nor sparse text for the automaton.
#[derive(Default)]
pub(crate) struct Patience {
    burst: usize,
    until: usize,
    /// Up to where stretches are not read side by side, and how often that was in vain at a time.
    alone: usize,
    vain: u32,
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

    /// Stretches from `at` on were read side by side in vain: not again for as long as they are, for
    /// longer and longer.
    fn goes_alone(&mut self, at: usize) {
        self.alone = at.saturating_add((LANES * LANE) << self.vain.min(LONGEST_ALONE));
        self.vain = self.vain.saturating_add(1);
    }

    /// Whether the automaton, idle at `at`, should go on reading.
    pub(crate) fn goes_on(&self, at: usize) -> bool {
        at < self.until
    }
}

/// How many stretches of a text are read side by side, and how long each is.
///
/// Each step of an automaton waits for the one before it, which takes a processor the time of several
/// steps: it takes several ways at a time as fast as one.
const LANES: usize = 4;
const LANE: usize = 512;
/// Longest pattern for which that is worth it: so many bytes of each stretch are read twice.
const LANE_PATTERN: u64 = 128;
/// How far a way without an end of a pattern must lead before the next stretches are tried: where
/// patterns end all the time, these were read in vain.
const TRIED: usize = 128;
/// How often that distance is doubled.
const LONGEST_ALONE: u32 = 4;

/// The automaton, and what of its patterns decides how it is run.
pub(crate) struct Runner<'a, A> {
    pub(crate) machine: &'a A,
    pub(crate) start: StateID,
    /// The longest pattern.
    pub(crate) longest: u64,
}

impl<A: Automaton> Runner<'_, A> {
    /// Reads on from `at` until a pattern ends, or the automaton is idle and better left; returns the
    /// state and the position reached.
    #[inline]
    pub(crate) fn run(
        &self,
        mut state: StateID,
        text: &[u8],
        mut at: usize,
        patience: &mut Patience,
    ) -> (StateID, usize) {
        let tried = at + TRIED;
        loop {
            let to = tried.max(patience.alone).min(text.len());
            for byte in text.get(at..to).unwrap_or_default() {
                state = self.machine.next_state(Anchored::No, state, *byte);
                at += 1;
                if self.machine.is_match(state) || (state == self.start && !patience.goes_on(at)) {
                    return (state, at);
                }
            }
            if at >= text.len() {
                return (state, at);
            }
            let Some(there) = self.side_by_side(state, text, at) else {
                patience.goes_alone(at);
                continue;
            };
            patience.vain = 0;
            state = there;
            at += LANES * LANE;
            if state == self.start && !patience.goes_on(at) {
                return (state, at);
            }
        }
    }

    /// Reads the next stretches, where no pattern ends in any of them; the state behind the last.
    fn side_by_side(&self, state: StateID, text: &[u8], at: usize) -> Option<StateID> {
        let longest = usize::try_from(self.longest).ok()?;
        let block = text.get(at..)?.get(..LANES * LANE)?;
        if self.longest > LANE_PATTERN {
            return None;
        }
        // No state tells of more than the longest pattern's length of what was read.
        let mut states = [self.start; LANES];
        for nth in LANE - longest..LANE {
            for (lane, state) in states.iter_mut().enumerate().skip(1) {
                let byte = *block.get((lane - 1) * LANE + nth)?;
                *state = self.machine.next_state(Anchored::No, *state, byte);
            }
        }
        let [first, ..] = &mut states;
        *first = state;
        let mut ends = false;
        let (one, rest) = block.split_at(LANE);
        let (two, rest) = rest.split_at(LANE);
        let (three, four) = rest.split_at(LANE);
        let [mut a, mut b, mut c, mut d] = states;
        for (((w, x), y), z) in one.iter().zip(two).zip(three).zip(four) {
            a = self.machine.next_state(Anchored::No, a, *w);
            b = self.machine.next_state(Anchored::No, b, *x);
            c = self.machine.next_state(Anchored::No, c, *y);
            d = self.machine.next_state(Anchored::No, d, *z);
            ends |= self.machine.is_match(a)
                | self.machine.is_match(b)
                | self.machine.is_match(c)
                | self.machine.is_match(d);
        }
        (!ends).then_some(d)
    }
}
