//! Numbers by seed.

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            random.below(2);
        }
        random
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }

    pub(super) fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }

    pub(super) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.index(all.len())]
    }

    pub(super) fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = 1 + self.index(most);
        (0..len)
            .map(|_| u8::try_from(self.below(256)).unwrap())
            .collect()
    }
}
