//! The third mask: what follows a token prefix (STAGE-25, STAGE-26).
//!
//! A prefix, then one or more of `0-9A-Za-z-._=`: the prefix stays, the rest is replaced by one
//! mask. Nothing is held: a prefix is passed on as it stands.
//!
//! The order is that of one pass for each prefix, longest first. So the text of a longer prefix
//! counts as such even inside what a shorter one masks (and gets a mask of its own there), while
//! that of a shorter one is gone with the mask.

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};

use crate::search::{Patience, PatternSet, with_machine};
use crate::sink::Sink;
use crate::{ReadTime, TraceError};

/// Prefixes of GitLab's own tokens, looked for in every job.
pub const DEFAULT_TOKEN_PREFIXES: [&str; 14] = [
    "glpat-",
    "gloas-",
    "gldt-",
    "glrt-",
    "glcbt-",
    "glrtr-",
    "glptt-",
    "glft-",
    "glimt-",
    "glagent-",
    "glsoat-",
    "glffct-",
    "_gitlab_session=",
    "gltok-",
];

const MAX_PREFIXES: usize = 4096;
const MAX_PREFIX_BYTES: usize = 1 << 16;

/// Compiles the default prefixes and `more`; white space around one does not count. There is no
/// cap beyond what a job can sensibly have.
pub(crate) fn prefixes(more: &[String]) -> Result<PatternSet, TraceError> {
    let more = more.iter().map(|prefix| prefix.trim());
    let all: Vec<&str> = DEFAULT_TOKEN_PREFIXES.into_iter().chain(more).collect();
    let bytes = all.iter().map(|prefix| prefix.len()).sum();
    if all.len() > MAX_PREFIXES || bytes > MAX_PREFIX_BYTES {
        return Err(TraceError::TooManyPrefixes {
            count: all.len(),
            bytes,
            max_count: MAX_PREFIXES,
            max_bytes: MAX_PREFIX_BYTES,
        });
    }
    PatternSet::new(&all)
}

const fn may_be_in_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'=')
}

/// For each byte, whether it may be in a token.
#[allow(
    clippy::indexing_slicing,
    reason = "a byte is within a table of all bytes"
)]
const TOKEN_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    loop {
        table[byte as usize] = may_be_in_token(byte);
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES.get(usize::from(byte)).copied().unwrap_or(false)
}

/// One stream's search for tokens.
#[derive(Debug, Default)]
pub(crate) struct TokenMasker {
    /// `None` until the first text.
    state: Option<StateID>,
    /// Bytes read so far.
    read: u64,
    /// Rank of the prefix that was just completed.
    prefix: Option<u32>,
    /// Rank of the prefix whose token is being dropped.
    token: Option<u32>,
    /// Where the last token ended, and its prefix's rank.
    last: Option<(u64, u32)>,
}

/// A search with what follows it in the chain.
pub(crate) struct TokenLink<'a, S> {
    pub(crate) masker: &'a mut TokenMasker,
    pub(crate) set: &'a PatternSet,
    pub(crate) next: S,
}

impl<S: Sink> Sink for TokenLink<'_, S> {
    fn text(&mut self, at: ReadTime, text: &[u8]) {
        if self.masker.is_idle(self.set) && self.set.skip(text, 0) == text.len() {
            self.masker.read += text.len() as u64;
            return pass(text, 0..text.len(), at, &mut self.next);
        }
        with_machine!(self.set, machine => {
            self.masker.scan(self.set, machine, at, text, &mut self.next)
        });
    }

    /// A mask of an earlier link: no prefix goes on across it, but a token may.
    fn mask(&mut self, at: ReadTime) {
        self.masker.state = None;
        self.masker.last = None;
        self.next.mask(at);
    }
}

impl TokenMasker {
    /// Whether nothing of a prefix or a token has been read.
    fn is_idle(&self, set: &PatternSet) -> bool {
        let nothing = self.state.is_none_or(|state| state == set.start());
        nothing && self.prefix.is_none() && self.token.is_none()
    }

    fn scan(
        &mut self,
        set: &PatternSet,
        machine: &impl Automaton,
        time: ReadTime,
        text: &[u8],
        next: &mut impl Sink,
    ) {
        let start = set.start();
        let mut state = self.state.unwrap_or(start);
        let (mut at, mut shown, mut patience) = (0, 0, Patience::default());
        while let Some(&byte) = text.get(at) {
            if self.token.is_some() {
                (state, at) = self.drop_token(set, machine, state, text, at, (time, next));
                shown = at;
                continue;
            }
            if let Some(rank) = self.prefix.take()
                && is_token_byte(byte)
            {
                pass(text, shown..at, time, next);
                next.mask(time);
                self.token = Some(rank);
                continue;
            }
            if state == start && !patience.goes_on(at) {
                let to = set.skip(text, at);
                patience.skipped(at, to);
                at = to;
            }
            (state, at) = set.runner(machine).run(state, text, at, &mut patience);
            if machine.is_match(state) {
                self.prefix = self.completed(set, state, self.read + at as u64);
            }
        }
        self.state = Some(state);
        self.read += text.len() as u64;
        if self.token.is_none() {
            pass(text, shown..text.len(), time, next);
        }
    }

    /// Reads on to the end of a token; returns the state and the position there.
    fn drop_token(
        &mut self,
        set: &PatternSet,
        machine: &impl Automaton,
        mut state: StateID,
        text: &[u8],
        mut at: usize,
        (time, next): (ReadTime, &mut impl Sink),
    ) -> (StateID, usize) {
        let start = set.start();
        let mut ends_prefix = true;
        loop {
            if state == start && self.prefix.is_none() {
                // Nothing depends on these but where the token ends.
                let plain = |byte: &u8| is_token_byte(*byte) && !set.begins(*byte);
                let rest = text.get(at..).unwrap_or_default();
                at += rest.iter().take_while(|byte| plain(byte)).count();
            }
            let Some(byte) = text.get(at) else { break };
            if !is_token_byte(*byte) {
                self.prefix = None;
                self.last = self.token.take().map(|rank| (self.read + at as u64, rank));
                break;
            }
            if ends_prefix && let Some(prefix) = self.prefix.take() {
                next.mask(time);
                self.token = Some(prefix);
            }
            state = machine.next_state(Anchored::No, state, *byte);
            at += 1;
            ends_prefix = machine.is_match(state);
            if ends_prefix {
                self.prefix = self.completed(set, state, self.read + at as u64);
            }
        }
        (state, at)
    }

    /// The prefix that ends at `end`, if it counts: one that goes before the token it overlaps.
    fn completed(&self, set: &PatternSet, state: StateID, end: u64) -> Option<u32> {
        let counts = |rank: u32, len: u64| match (self.token, self.last) {
            (Some(token), _) => rank < token,
            (None, Some((last, token))) => end - len >= last || rank < token,
            (None, None) => true,
        };
        set.best_match(state, u64::MAX, counts)
            .map(|(rank, _)| rank)
    }
}

fn pass(text: &[u8], range: std::ops::Range<usize>, time: ReadTime, next: &mut impl Sink) {
    if let Some(piece) = text.get(range).filter(|piece| !piece.is_empty()) {
        next.text(time, piece);
    }
}

#[cfg(test)]
mod tests;
