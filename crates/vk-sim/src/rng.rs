//! The seed's numbers: the same seed draws the same fleet, faults and delays on every machine.

/// SplitMix64: small, fast, and good enough to choose delays and faults by.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The numbers of a seed.
    #[must_use]
    pub(crate) const fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    /// Any number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included; `low` where there is nothing between.
    pub(crate) const fn between(&mut self, low: u64, high: u64) -> u64 {
        let Some(span) = high.saturating_sub(low).checked_add(1) else {
            return self.next();
        };
        low + self.next() % span
    }

    /// A place in something that has `count`; 0 where it has none.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.between(0, (count as u64).saturating_sub(1))).unwrap_or_default()
    }

    /// True once in `n` times.
    pub(crate) const fn one_in(&mut self, n: u64) -> bool {
        self.between(1, n) == 1
    }

    /// 16 bytes for an identifier.
    pub(crate) fn id(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(
            self.next()
                .to_be_bytes()
                .into_iter()
                .chain(self.next().to_be_bytes()),
        ) {
            *to = from;
        }
        bytes
    }
}
