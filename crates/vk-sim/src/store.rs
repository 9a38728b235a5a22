//! A process's disk for records, and what waits for it: the order that every edge keeps.

use std::collections::VecDeque;

/// One step's records and effects, waiting for their sync.
#[derive(Clone, Debug)]
struct Batch<R, E> {
    records: Vec<R>,
    effects: Vec<E>,
}

/// Records in the order of their steps. A sync covers all steps before it; effects are released
/// after it, in order; a crash takes whatever was not synced, and every effect not yet released.
#[derive(Clone, Debug)]
pub(crate) struct Store<R, E> {
    durable: Vec<R>,
    waiting: VecDeque<Batch<R, E>>,
    released: VecDeque<E>,
}

impl<R, E> Default for Store<R, E> {
    fn default() -> Self {
        Store {
            durable: Vec::new(),
            waiting: VecDeque::new(),
            released: VecDeque::new(),
        }
    }
}

impl<R: Clone, E> Store<R, E> {
    /// Takes a step. True where a sync is wanted.
    pub(crate) fn push(&mut self, records: Vec<R>, effects: Vec<E>) -> bool {
        if records.is_empty() && self.waiting.is_empty() {
            self.released.extend(effects);
            return false;
        }
        self.waiting.push_back(Batch { records, effects });
        true
    }

    /// Everything waiting becomes durable; says which records that were.
    pub(crate) fn sync(&mut self) -> Vec<R> {
        let mut synced = Vec::new();
        for mut batch in self.waiting.drain(..) {
            synced.extend(batch.records.iter().cloned());
            self.durable.append(&mut batch.records);
            self.released.extend(batch.effects);
        }
        synced
    }

    /// The next effect that may happen.
    pub(crate) fn next_effect(&mut self) -> Option<E> {
        self.released.pop_front()
    }

    /// The process dies: what was not synced is lost, and so is every effect not yet released.
    pub(crate) fn crash(&mut self) {
        self.waiting.clear();
        self.released.clear();
    }

    /// What a new life reads.
    #[must_use]
    pub(crate) fn durable(&self) -> &[R] {
        &self.durable
    }

    /// Replaces what is durable by what the owner's compaction left of it.
    pub(crate) fn compact(&mut self, kept: Vec<R>) {
        self.durable = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_waits_for_its_own_and_all_earlier_records() {
        let mut store: Store<u8, &str> = Store::default();
        assert!(!store.push(vec![], vec!["free"]));
        assert_eq!(store.next_effect(), Some("free"));
        assert!(store.push(vec![1], vec!["one"]));
        assert!(
            store.push(vec![], vec!["behind"]),
            "no records, yet it waits"
        );
        assert_eq!(store.next_effect(), None);
        assert_eq!(store.sync(), [1]);
        assert_eq!(
            (store.next_effect(), store.next_effect()),
            (Some("one"), Some("behind"))
        );
    }

    #[test]
    fn a_crash_takes_what_was_not_synced_and_what_was_not_released() {
        let mut store: Store<u8, &str> = Store::default();
        store.push(vec![1], vec!["one"]);
        store.sync();
        store.push(vec![2], vec!["two"]);
        store.crash();
        assert_eq!(store.durable(), [1]);
        assert_eq!(store.next_effect(), None);
        assert!(store.sync().is_empty());
    }
}
