//! The search for many patterns at once, shared by phrases and token prefixes.
//!
//! An Aho-Corasick automaton knows, after every byte, the longest suffix of what was read that
//! begins a pattern: so no occurrence is missed, whatever came before it and however the stream was
//! cut. A vectorized search for the patterns' first bytes skips text in which none can begin.

mod machine;

use aho_corasick::automaton::StateID;
use aho_corasick::{Span, packed};

pub(crate) use machine::{Machine, Patience, Runner};
use machine::{Visited, begins, build, classes, seconds, vectorized, walk};

use crate::TraceError;

/// The vectorized search is not worth its start for less text than this.
const SHORT: usize = 24;

/// Patterns compiled for search. A pattern's number is its rank: 0 is the longest, and of equally
/// long ones the last in byte order.
pub(crate) struct PatternSet {
    pub(crate) machine: Machine,
    start: StateID,
    empty: bool,
    /// What is known of each state, by its number shifted.
    nodes: Vec<Node>,
    shift: u32,
    /// Whether a pattern begins with a byte.
    begins: Box<[bool; 256]>,
    /// Whether a byte is the second of a pattern; any is where a pattern has one byte.
    seconds: Box<[bool; 256]>,
    firsts: Option<packed::Searcher>,
    /// A pattern that begins this close to the end of a text may escape the vectorized search.
    blind_tail: usize,
    /// Bytes that no pattern tells apart have one class.
    class_of: Vec<u16>,
    classes: usize,
    longest: u64,
}

/// A state: a prefix of a pattern, the longest that is a suffix of what was read.
#[derive(Clone, Copy)]
struct Node {
    /// The prefix's length.
    depth: u32,
    /// The lowest rank of the patterns that go on from here.
    through: u32,
    /// Of the shorter prefixes that are suffixes too, the longest with a lower `through`.
    link: StateID,
    /// The pattern that ends here, if the prefix is a whole one.
    whole: Option<u32>,
    /// Of the shorter prefixes that are suffixes too, the longest that is a whole pattern.
    ends: StateID,
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
        let (class_of, classes) = classes(&patterns);
        let mut set = Self {
            machine,
            start: StateID::default(),
            empty: patterns.is_empty(),
            nodes: Vec::new(),
            shift: 0,
            begins: begins(&patterns),
            seconds: seconds(&patterns),
            firsts,
            blind_tail,
            class_of,
            classes,
            longest: patterns.first().map_or(0, |longest| longest.len() as u64),
        };
        let states = with_machine!(set, machine => walk(machine, &patterns));
        set.start = states
            .first()
            .map_or(StateID::default(), |first| first.state);
        set.learn(states);
        Ok(set)
    }

    fn learn(&mut self, mut states: Vec<Visited>) {
        let ids = || states.iter().map(|visited| visited.state.as_usize());
        self.shift = ids()
            .fold(0, |all, id| all | id)
            .trailing_zeros()
            .min(usize::BITS - 1);
        let last = ids().max().unwrap_or(0) >> self.shift;
        self.nodes = vec![
            Node {
                through: u32::MAX,
                ..self.root()
            };
            last + 1
        ];
        for visited in &states {
            if let Some(node) = self.nodes.get_mut(visited.state.as_usize() >> self.shift) {
                node.depth = visited.depth;
                match visited.whole {
                    true => node.whole = Some(visited.rank),
                    false => node.through = node.through.min(visited.rank),
                }
            }
        }
        // A suffix is shorter, so its links are known before they are asked for.
        states.sort_unstable_by_key(|visited| visited.depth);
        for visited in states.iter().filter(|visited| visited.depth > 0) {
            let through = self.node(visited.state).through;
            let mut link = visited.suffix;
            while link != self.start && self.node(link).through >= through {
                link = self.node(link).link;
            }
            let suffix = self.node(visited.suffix);
            let ends = if suffix.whole.is_some() {
                visited.suffix
            } else {
                suffix.ends
            };
            if let Some(node) = self.nodes.get_mut(visited.state.as_usize() >> self.shift) {
                node.link = link;
                node.ends = ends;
            }
        }
    }

    fn root(&self) -> Node {
        Node {
            depth: 0,
            through: 0,
            link: self.start,
            whole: None,
            ends: self.start,
        }
    }

    fn node(&self, state: StateID) -> Node {
        let node = self.nodes.get(state.as_usize() >> self.shift);
        node.copied().unwrap_or_else(|| self.root())
    }

    /// How many classes of bytes there are.
    pub(crate) fn classes(&self) -> usize {
        self.classes
    }

    /// The class of a byte.
    pub(crate) fn class(&self, byte: u8) -> usize {
        self.class_of
            .get(usize::from(byte))
            .copied()
            .unwrap_or_default()
            .into()
    }

    /// Whether a pattern begins with a byte.
    #[inline]
    pub(crate) fn begins(&self, byte: u8) -> bool {
        self.begins.get(usize::from(byte)).copied().unwrap_or(true)
    }

    /// What runs the set's automaton, given under its own type.
    #[inline]
    pub(crate) fn runner<'a, A>(&self, machine: &'a A) -> Runner<'a, A> {
        let (start, longest) = (self.start, self.longest);
        Runner {
            machine,
            start,
            longest,
        }
    }

    /// Length of the longest pattern.
    pub(crate) fn longest(&self) -> u64 {
        self.longest
    }

    /// The state in which nothing of a pattern has been read.
    pub(crate) fn start(&self) -> StateID {
        self.start
    }

    /// Length of the longest suffix of what was read that begins a pattern (or is a whole one).
    pub(crate) fn depth(&self, state: StateID) -> u64 {
        self.node(state).depth.into()
    }

    /// Length of the longest suffix of what was read from which a pattern may still come that has
    /// a lower rank than `rank`.
    pub(crate) fn rival_depth(&self, state: StateID, rank: u32) -> u64 {
        let mut node = self.node(state);
        while node.through >= rank && node.depth > 0 {
            node = self.node(node.link);
        }
        node.depth.into()
    }

    /// The longest pattern that is a suffix of what was read, is at most `room` bytes long and
    /// passes `wanted`: its rank and length.
    pub(crate) fn best_match(
        &self,
        state: StateID,
        room: u64,
        wanted: impl Fn(u32, u64) -> bool,
    ) -> Option<(u32, u64)> {
        let mut node = self.node(state);
        while node.depth > 0 {
            let len = node.depth.into();
            if let Some(rank) = node.whole
                && len <= room
                && wanted(rank, len)
            {
                return Some((rank, len));
            }
            node = self.node(node.ends);
        }
        None
    }

    /// Where a pattern may begin at first, by its first two bytes; the text's end where none does.
    fn first_of_two(&self, text: &[u8]) -> usize {
        let mut from = 0;
        while let Some(found) = text
            .get(from..)
            .and_then(|rest| rest.iter().position(|byte| self.begins(*byte)))
        {
            let at = from + found;
            match text.get(at + 1) {
                Some(byte) if !self.goes_on(*byte) => from = at + 1,
                _ => return at,
            }
        }
        text.len()
    }

    /// Whether a byte is the second of a pattern, or one has none.
    fn goes_on(&self, byte: u8) -> bool {
        self.seconds.get(usize::from(byte)).copied().unwrap_or(true)
    }

    /// Where reading has to start, from `from` on: no pattern begins in the text before it.
    pub(crate) fn skip(&self, text: &[u8], from: usize) -> usize {
        if self.empty {
            return text.len();
        }
        let rest = text.get(from..).unwrap_or_default();
        let Some(firsts) = self.firsts.as_ref().filter(|_| rest.len() >= SHORT) else {
            return from + self.first_of_two(rest);
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

#[cfg(test)]
mod tests {
    use aho_corasick::Anchored;
    use aho_corasick::automaton::Automaton;

    use super::*;

    fn read(set: &PatternSet, text: &[u8]) -> StateID {
        with_machine!(set, machine => text.iter().fold(set.start(), |state, byte| {
            machine.next_state(Anchored::No, state, *byte)
        }))
    }

    #[test]
    fn ranks_go_by_length_then_backwards_by_bytes() {
        let set = PatternSet::new(&["ab", "", "abc", "zz", "ab"]).unwrap();
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
    fn rivals_are_unfinished_patterns_of_lower_rank() {
        let set = PatternSet::new(&["aaaa", "aab", "ax", "bcd"]).unwrap();
        let rival = |text: &str, rank| set.rival_depth(read(&set, text.as_bytes()), rank);
        assert_eq!(rival("aaaa", 0), 0);
        assert_eq!(rival("aaaa", 1), 3, "aaa may go on to aaaa");
        assert_eq!(
            rival("aab", 2),
            1,
            "b may go on to bcd, which goes before aab"
        );
        assert_eq!(rival("aab", 1), 0);
        assert_eq!(rival("bcd", 3), 0);
    }

    /// Runs over a text, and checks each step against the automaton alone.
    fn check_run(set: &PatternSet, text: &[u8]) {
        with_machine!(set, machine => {
            let runner = set.runner(machine);
            let (mut state, mut at, mut alone) = (set.start(), 0, set.start());
            let mut patience = Patience::default();
            patience.skipped(0, 0);
            while at < text.len() {
                let from = at;
                (state, at) = runner.run(state, text, at, &mut patience);
                assert!(at > from);
                for (nth, byte) in text[from..at].iter().enumerate() {
                    alone = machine.next_state(Anchored::No, alone, *byte);
                    let last = from + nth + 1 == at;
                    assert!(last || !machine.is_match(alone), "{} was passed", from + nth);
                }
                assert_eq!(state, alone, "at {at}");
            }
        });
    }

    #[test]
    fn stretches_side_by_side_lead_to_where_reading_alone_does() {
        // An end of a pattern wherever it may lie to the stretches, and to where they are tried.
        let set = PatternSet::new(&["aaaaaaaab", "aab", "ba"]).unwrap();
        let set_of_long = PatternSet::new(&["a".repeat(100) + "b", "bb".to_owned()]).unwrap();
        for end in (120..2800).step_by(3).chain(2170..2190) {
            for set in [&set, &set_of_long] {
                let mut text = vec![b'a'; 5000];
                text[end] = b'b';
                check_run(set, &text);
            }
        }
    }

    #[test]
    fn stretches_are_read_alone_where_patterns_end_in_them() {
        let mut seed = 5_u32;
        for quiet in [40, 700, 3000, 9000] {
            let mut random = || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                b'a' + u8::try_from(seed >> 30).unwrap()
            };
            let letters = (0..20_000).map(|nth| if nth % quiet > 20 { b'a' } else { random() });
            let text: Vec<u8> = letters.collect();
            for patterns in [&["abac", "aabbaab", "bbbb", "ca"][..], &["cc", "ab"]] {
                check_run(&PatternSet::new(patterns).unwrap(), &text);
            }
        }
    }

    #[test]
    fn a_pattern_of_one_byte_is_found_whatever_follows() {
        let set = PatternSet::new(&["glpat-", "x"]).unwrap();
        assert_eq!(set.skip(b".aa.x.", 0), 4);
        let set = PatternSet::new(&["glpat-", "_git"]).unwrap();
        assert_eq!(set.skip(b"gaga_token", 0), 10);
        assert_eq!(set.skip(b"gagag", 0), 4);
        assert_eq!(set.skip(b"gaga_token glpat-", 0), 11);
    }

    #[test]
    fn skipping_never_passes_a_pattern() {
        let set = PatternSet::new(&["needle in hay", "pin"]).unwrap();
        let mut text = vec![b'.'; 300];
        assert_eq!(set.skip(&text, 0), 300 - 5);
        text.extend_from_slice(b"needle");
        assert_eq!(set.skip(&text, 10), 300);
        text.truncate(305);
        assert!(set.skip(&text, 10) <= 300);
        assert_eq!(set.skip(b"short pin", 2), 6);
        let set = PatternSet::new(&["abab", "b"]).unwrap();
        let text = [&[b'.'; 60][..], b"ab"].concat();
        assert!(set.skip(&text, 0) <= 60);
    }
}
