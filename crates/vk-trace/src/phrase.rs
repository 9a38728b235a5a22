//! The first mask: phrases, wherever they stand, longest first (STAGE-24, STAGE-25).
//!
//! Bytes are held only while they may belong to a phrase, or wait for the decision about one: never
//! more than the job's phrases are long in sum, however long a line is.

mod held;
mod overlap;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};

use crate::ReadTime;
use crate::search::{Patience, PatternSet, with_machine};
use crate::sink::Sink;
use held::{Held, Window};
use overlap::Overlaps;

/// One stream's search for phrases.
pub(crate) struct PhraseMasker {
    set: Arc<PatternSet>,
    state: StateID,
    held: Held,
    overlaps: Overlaps,
}

impl PhraseMasker {
    /// A search for the phrases of `set`.
    pub(crate) fn new(set: &Arc<PatternSet>) -> Self {
        Self {
            set: Arc::clone(set),
            state: set.start(),
            held: Held::default(),
            overlaps: Overlaps::default(),
        }
    }

    /// Takes text of whole runes; passes on what can hold no phrase any more.
    pub(crate) fn feed(
        &mut self,
        set: &Arc<PatternSet>,
        at: ReadTime,
        text: &[u8],
        sink: &mut impl Sink,
    ) {
        self.follow(set, sink);
        self.read(at, text, sink);
    }

    /// The end of the stream: passes on what was held.
    pub(crate) fn flush(&mut self, set: &Arc<PatternSet>, sink: &mut impl Sink) {
        self.follow(set, sink);
        let mut window = self.held.open(ReadTime::default(), &[]);
        let end = window.end();
        self.overlaps.decide(&self.set, end);
        pass_decided(&mut self.overlaps, &mut window, end, sink);
        window.pass(end, sink);
        window.close();
        self.overlaps.clear();
        self.state = self.set.start();
    }

    /// Goes over to another set of phrases; what is held is read again, by that set.
    fn follow(&mut self, set: &Arc<PatternSet>, sink: &mut impl Sink) {
        if Arc::ptr_eq(&self.set, set) {
            return;
        }
        self.set = Arc::clone(set);
        self.state = set.start();
        self.overlaps.clear();
        for (at, bytes) in self.held.take() {
            self.read(at, &bytes, sink);
        }
    }

    fn read(&mut self, at: ReadTime, text: &[u8], sink: &mut impl Sink) {
        let set = &*self.set;
        let mut window = self.held.open(at, text);
        let overlaps = &mut self.overlaps;
        self.state = with_machine!(set, machine => {
            scan(set, machine, self.state, overlaps, &mut window, sink)
        });
        let safe = window.end() - set.depth(self.state);
        let frontier = if overlaps.is_idle() {
            safe
        } else {
            overlaps.decide(set, safe)
        };
        pass_decided(overlaps, &mut window, frontier, sink);
        window.pass(frontier, sink);
        window.close();
    }
}

/// Reads the window's new text; returns the state at its end.
fn scan(
    set: &PatternSet,
    machine: &impl Automaton,
    mut state: StateID,
    overlaps: &mut Overlaps,
    window: &mut Window<'_>,
    sink: &mut impl Sink,
) -> StateID {
    let (text, from) = (window.chunk(), window.chunk_from());
    let (start, mut at, mut patience) = (set.start(), 0, Patience::default());
    while at < text.len() {
        if state == start && overlaps.is_idle() {
            let to = set.skip(text, at);
            patience.skipped(at, to);
            at = to;
        }
        let Some(rest) = text.get(at..) else { break };
        for byte in rest {
            state = machine.next_state(Anchored::No, state, *byte);
            at += 1;
            if machine.is_match(state) {
                overlaps.found(set, state, from + at as u64, window.base());
            }
            if !overlaps.is_idle() {
                let safe = from + at as u64 - set.depth(state);
                if overlaps.is_ripe(safe) {
                    let frontier = overlaps.decide(set, safe);
                    pass_decided(overlaps, window, frontier, sink);
                }
            } else if state == start && !patience.goes_on(at) {
                break;
            }
        }
    }
    state
}

/// Passes on what is decided, up to the last mask that begins before `frontier`.
fn pass_decided(
    overlaps: &mut Overlaps,
    window: &mut Window<'_>,
    frontier: u64,
    sink: &mut impl Sink,
) {
    while let Some((start, end)) = overlaps.next_masked(frontier) {
        window.pass(start, sink);
        window.mask(end, sink);
    }
}
