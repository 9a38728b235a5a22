//! The last so many of something.

use std::collections::{BTreeMap, VecDeque};

/// A map that forgets its oldest entry when it is full.
#[derive(Debug)]
pub(crate) struct Remembered<K, V> {
    most: usize,
    order: VecDeque<K>,
    values: BTreeMap<K, V>,
}

impl<K: Copy + Ord, V> Remembered<K, V> {
    pub(crate) fn new(most: usize) -> Remembered<K, V> {
        Remembered {
            most,
            order: VecDeque::new(),
            values: BTreeMap::new(),
        }
    }

    /// Remembers one more; the first value of a key stays.
    pub(crate) fn add(&mut self, key: K, value: V) {
        if self.values.contains_key(&key) {
            return;
        }
        self.values.insert(key, value);
        self.order.push_back(key);
        while self.order.len() > self.most {
            if let Some(oldest) = self.order.pop_front() {
                self.values.remove(&oldest);
            }
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key)
    }

    /// All of them, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.order
            .iter()
            .filter_map(|key| self.values.get(key).map(|value| (key, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let mut last = Remembered::new(2);
        for n in [1, 2, 1, 3] {
            last.add(n, n * 10);
        }
        assert_eq!(last.get(&1), None);
        let all: Vec<_> = last.iter().map(|(k, v)| (*k, *v)).collect();
        assert_eq!(all, [(2, 20), (3, 30)]);
    }
}
