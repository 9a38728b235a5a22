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
use crate::search::{Patience, PatternSet, run, with_machine};
use crate::sink::Sink;
use held::{Held, Window};
use overlap::{Overlaps, Reached};

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
        self.state = self.set.start();
        let mut window = self.held.open(ReadTime::default(), &[]);
        // Nothing more comes, so nothing is unseen.
        let end = Reached {
            at: window.end(),
            state: self.state,
        };
        pass_decided(&self.set, end, &mut self.overlaps, &mut window, sink);
        window.close();
        self.overlaps.clear();
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
        let (set, overlaps) = (&*self.set, &mut self.overlaps);
        let mut window = self.held.open(at, text);
        self.state = with_machine!(set, machine => {
            scan(set, machine, self.state, overlaps, &mut window, sink)
        });
        let end = Reached {
            at: window.end(),
            state: self.state,
        };
        pass_decided(set, end, overlaps, &mut window, sink);
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
        if overlaps.is_idle() {
            if state == start && !patience.goes_on(at) {
                let to = set.skip(text, at);
                patience.skipped(at, to);
                at = to;
            }
            (state, at) = run(machine, state, text, at, start, &patience);
        } else {
            let Some(byte) = text.get(at) else { break };
            state = machine.next_state(Anchored::No, state, *byte);
            at += 1;
        }
        let reached = Reached {
            at: from + at as u64,
            state,
        };
        if machine.is_match(state)
            && let Some(start) = overlaps.found(set, reached, window.base())
        {
            window.pass(start, sink);
            window.mask(reached.at, sink);
            continue;
        }
        while let Some((start, end)) = overlaps.settle_first(set, reached) {
            window.pass(start, sink);
            window.mask(end, sink);
        }
        if !overlaps.is_idle() && overlaps.is_ripe(set, reached) {
            pass_masks(set, reached, overlaps, window, sink);
        }
    }
    state
}

/// Decides what can be decided, and passes on all that is, as far as no phrase can begin in it.
fn pass_decided(
    set: &PatternSet,
    reached: Reached,
    overlaps: &mut Overlaps,
    window: &mut Window<'_>,
    sink: &mut impl Sink,
) {
    let frontier = if overlaps.is_idle() {
        reached.safe(set)
    } else {
        pass_masks(set, reached, overlaps, window, sink)
    };
    window.pass(frontier, sink);
}

/// Decides what can be decided, and passes on the masks and what lies before them. Returns up to
/// where all is decided.
fn pass_masks(
    set: &PatternSet,
    reached: Reached,
    overlaps: &mut Overlaps,
    window: &mut Window<'_>,
    sink: &mut impl Sink,
) -> u64 {
    let frontier = overlaps.decide(set, reached);
    while let Some((start, end)) = overlaps.next_masked(frontier) {
        window.pass(start, sink);
        window.mask(end, sink);
    }
    frontier
}
