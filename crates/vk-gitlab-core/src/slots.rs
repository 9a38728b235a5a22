//! The daemon's slots: `concurrent` jobs and job requests over all its runners.
//!
//! A plain ledger beside the acquire cores, driven by their effects: [`Slots::want`],
//! [`Slots::pass`], [`Slots::take`] and [`Slots::give_back`] for the effects of the same names, and
//! after each [`Slots::changes`], whose pairs become [`crate::acquire::Input::SlotFree`] inputs. A
//! runner that polls GitLab gives its slot back after every answer, so that one that waits gets its
//! turn: a free slot is kept for those that wait, in their order, until they take it or pass.

use std::collections::{BTreeMap, VecDeque};

/// A runner of the daemon, by its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunnerIndex(pub u32);

/// Who holds and who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    concurrent: u32,
    taken: u32,
    waiting: VecDeque<RunnerIndex>,
    told: BTreeMap<RunnerIndex, bool>,
}

impl Slots {
    /// The slots of a daemon with so many runners, of which `taken` are held by jobs of its state
    /// files; that may be more than `concurrent`, when it was lowered.
    #[must_use]
    pub fn new(concurrent: u32, runners: u32, taken: u32) -> Slots {
        Slots {
            concurrent,
            taken,
            waiting: VecDeque::new(),
            told: (0..runners)
                .map(|index| (RunnerIndex(index), false))
                .collect(),
        }
    }

    /// Takes a slot, where one is free and not kept for another runner.
    pub fn take(&mut self, runner: RunnerIndex) -> bool {
        let free = self.is_free_for(runner);
        if free {
            self.taken = self.taken.saturating_add(1);
            self.pass(runner);
        } else {
            // The refusal itself tells the runner that none is free: it is to hear when one is.
            self.told.insert(runner, false);
        }
        free
    }

    /// Jobs of a state file hold slots of their own, also above `concurrent`.
    pub fn hold(&mut self, jobs: u32) {
        self.taken = self.taken.saturating_add(jobs);
    }

    /// A slot comes back.
    pub fn give_back(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// The runner waits for a slot, behind those that wait already.
    pub fn want(&mut self, runner: RunnerIndex) {
        if !self.waiting.contains(&runner) {
            self.waiting.push_back(runner);
        }
    }

    /// Jobs and job requests at once from now on; those above a lowered number run on.
    pub fn set_concurrent(&mut self, concurrent: u32) {
        self.concurrent = concurrent;
    }

    /// A runner begins, or begins anew: it waits for nothing and was told nothing.
    pub fn begin(&mut self, runner: RunnerIndex) {
        self.pass(runner);
        self.told.insert(runner, false);
    }

    /// The runner does not wait any more.
    pub fn pass(&mut self, runner: RunnerIndex) {
        self.waiting.retain(|other| *other != runner);
    }

    /// Jobs and job requests at once.
    #[must_use]
    pub const fn concurrent(&self) -> u32 {
        self.concurrent
    }

    /// Slots held.
    #[must_use]
    pub const fn taken(&self) -> u32 {
        self.taken
    }

    /// What each runner must be told since the last call: whether a slot is free for it.
    pub fn changes(&mut self) -> Vec<(RunnerIndex, bool)> {
        let now: Vec<_> = self
            .told
            .keys()
            .map(|runner| (*runner, self.is_free_for(*runner)))
            .collect();
        now.into_iter()
            .filter(|(runner, free)| self.told.insert(*runner, *free) != Some(*free))
            .collect()
    }

    fn is_free_for(&self, runner: RunnerIndex) -> bool {
        let free =
            usize::try_from(self.concurrent.saturating_sub(self.taken)).unwrap_or(usize::MAX);
        let ahead = self
            .waiting
            .iter()
            .take_while(|other| **other != runner)
            .count();
        free > ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RunnerIndex = RunnerIndex(0);
    const B: RunnerIndex = RunnerIndex(1);

    /// ADM-30
    #[test]
    fn no_more_slots_are_taken_than_there_are() {
        let mut slots = Slots::new(2, 2, 1);
        assert!(slots.take(A));
        assert!(!slots.take(B));
        slots.give_back();
        assert!(slots.take(B));
        assert_eq!(slots.taken(), 2);
    }

    /// ADM-30
    #[test]
    fn a_runner_that_was_refused_hears_of_the_next_free_slot() {
        let mut slots = Slots::new(1, 1, 0);
        assert_eq!(slots.changes(), [(A, true)]);
        assert!(slots.take(A));
        assert!(!slots.take(A), "the runner's second request");
        slots.give_back();
        assert_eq!(
            slots.changes(),
            [(A, true)],
            "it believes that none is free"
        );
    }

    #[test]
    fn jobs_above_a_lowered_limit_leave_none() {
        let mut slots = Slots::new(1, 1, 3);
        assert!(!slots.take(A));
        slots.give_back();
        slots.give_back();
        assert!(!slots.take(A));
        slots.give_back();
        assert!(slots.take(A));
    }

    /// CFG-09
    #[test]
    fn a_raised_limit_frees_slots_and_a_lowered_one_takes_none_away() {
        let mut slots = Slots::new(1, 1, 0);
        slots.changes();
        assert!(slots.take(A));
        assert!(!slots.take(A));
        slots.set_concurrent(2);
        assert_eq!(slots.changes(), [(A, true)]);
        assert!(slots.take(A));
        slots.set_concurrent(1);
        assert_eq!(slots.taken(), 2);
        slots.give_back();
        assert!(!slots.take(A));
    }

    #[test]
    fn a_runner_that_begins_anew_is_told_anew_and_waits_no_more() {
        let mut slots = Slots::new(1, 2, 0);
        slots.changes();
        slots.want(A);
        slots.begin(A);
        assert_eq!(slots.changes(), [(A, true)]);
        assert!(slots.take(B), "nothing is kept for the one that began anew");
    }

    #[test]
    fn a_runner_that_waits_comes_before_one_that_comes_back() {
        let mut slots = Slots::new(1, 2, 0);
        assert!(slots.take(A));
        slots.want(B);
        slots.give_back();
        assert!(!slots.take(A), "the slot is kept for the one that waited");
        slots.want(A);
        assert!(slots.take(B));
        slots.give_back();
        assert!(slots.take(A));
    }

    #[test]
    fn a_slot_that_is_passed_goes_to_the_next() {
        let mut slots = Slots::new(1, 2, 0);
        slots.want(B);
        assert!(!slots.take(A));
        slots.pass(B);
        assert!(slots.take(A));
    }

    #[test]
    fn runners_are_told_of_changes_and_of_nothing_else() {
        let mut slots = Slots::new(1, 2, 0);
        assert_eq!(slots.changes(), [(A, true), (B, true)]);
        assert_eq!(slots.changes(), []);
        assert!(slots.take(A));
        assert_eq!(slots.changes(), [(A, false), (B, false)]);
        slots.want(B);
        slots.give_back();
        assert_eq!(slots.changes(), [(B, true)], "kept for the one that waits");
    }
}
