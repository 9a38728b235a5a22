//! The first mask: phrases, wherever they stand, longest first (STAGE-24, STAGE-25).
//!
//! Bytes are held only while they may belong to a phrase, or wait for the decision about one: never
//! more than the job's phrases are long in sum, however long a line is.

mod held;
mod memo;
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
use memo::Memo;
use overlap::{Overlaps, Reached};

/// After how many steps with undecided occurrences [`Memo`] is asked, and for how much text at least.
const WORTH_A_TABLE: usize = 16;

/// One stream's search for phrases.
pub(crate) struct PhraseMasker {
    set: Arc<PatternSet>,
    state: StateID,
    held: Held,
    overlaps: Overlaps,
    memo: Memo,
}

impl PhraseMasker {
    /// A search for the phrases of `set`.
    pub(crate) fn new(set: &Arc<PatternSet>) -> Self {
        Self {
            set: Arc::clone(set),
            state: set.start(),
            held: Held::default(),
            overlaps: Overlaps::default(),
            memo: Memo::default(),
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
        self.memo = Memo::default();
        for (at, bytes) in self.held.take() {
            self.read(at, &bytes, sink);
        }
    }

    fn read(&mut self, at: ReadTime, text: &[u8], sink: &mut impl Sink) {
        let (set, overlaps) = (&*self.set, &mut self.overlaps);
        let mut window = self.held.open(at, text);
        self.state = with_machine!(set, machine => {
            scan((set, machine), self.state, overlaps, &mut self.memo, &mut window, sink)
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
    (set, machine): (&PatternSet, &impl Automaton),
    mut state: StateID,
    overlaps: &mut Overlaps,
    memo: &mut Memo,
    window: &mut Window<'_>,
    sink: &mut impl Sink,
) -> StateID {
    let (text, from) = (window.chunk(), window.chunk_from());
    let (start, mut at, mut patience) = (set.start(), 0, Patience::default());
    let runner = set.runner(machine);
    let (mut masks, mut undecided) = (Vec::new(), 0);
    while at < text.len() {
        if overlaps.is_idle() {
            if state == start && !patience.goes_on(at) {
                let to = set.skip(text, at);
                patience.skipped(at, to);
                at = to;
            }
            (state, at) = runner.run(state, text, at, &mut patience);
            if !machine.is_match(state) {
                continue;
            }
        } else if undecided >= WORTH_A_TABLE
            && text.len() - at >= WORTH_A_TABLE
            && memo.is_awake(from + at as u64)
        {
            undecided = 0;
            (state, at) = memo.run((set, machine), state, at, overlaps, window, sink);
            continue;
        } else {
            let Some(byte) = text.get(at) else { break };
            state = machine.next_state(Anchored::No, state, *byte);
            at += 1;
            undecided += 1;
        }
        let reached = Reached {
            at: from + at as u64,
            state,
        };
        settle(set, machine, reached, overlaps, window.base(), &mut masks);
        for (start, end) in masks.drain(..) {
            window.pass(start, sink);
            window.mask(end, sink);
        }
    }
    state
}

/// What the byte just read decides: the starts and ends of `masks`, in order.
fn settle(
    set: &PatternSet,
    machine: &impl Automaton,
    reached: Reached,
    overlaps: &mut Overlaps,
    base: u64,
    masks: &mut Vec<(u64, u64)>,
) {
    if machine.is_match(reached.state)
        && let Some(start) = overlaps.found(set, reached, base)
    {
        return masks.push((start, reached.at));
    }
    if overlaps.is_idle() {
        return;
    }
    while let Some(mask) = overlaps.settle_first(set, reached) {
        masks.push(mask);
    }
    if !overlaps.is_idle() && overlaps.is_ripe(set, reached) {
        decide(set, reached, overlaps, masks);
    }
}

/// Decides what can be decided: the masks up to where all is decided, in order; returns where.
fn decide(
    set: &PatternSet,
    reached: Reached,
    overlaps: &mut Overlaps,
    masks: &mut Vec<(u64, u64)>,
) -> u64 {
    let frontier = overlaps.decide(set, reached);
    masks.extend(std::iter::from_fn(|| overlaps.next_masked(frontier)));
    frontier
}

/// Decides what can be decided, and passes on all that is, as far as no phrase can begin in it.
fn pass_decided(
    set: &PatternSet,
    reached: Reached,
    overlaps: &mut Overlaps,
    window: &mut Window<'_>,
    sink: &mut impl Sink,
) {
    let mut masks = Vec::new();
    let frontier = if overlaps.is_idle() {
        reached.safe(set)
    } else {
        decide(set, reached, overlaps, &mut masks)
    };
    for (start, end) in masks {
        window.pass(start, sink);
        window.mask(end, sink);
    }
    window.pass(frontier, sink);
}
