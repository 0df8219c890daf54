//! Reproducible random numbers from a seed.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number less than `most`, which is at least one.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    pub(crate) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// True with this probability in percent.
    pub(crate) fn percent(&mut self, chances: usize) -> bool {
        self.below(100) < chances
    }

    pub(crate) fn of<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }

    /// One of several, at random by weight.
    pub(crate) fn weighed<T: Copy>(&mut self, among: &[(usize, T)]) -> T {
        let mut at = self.below(among.iter().map(|(weight, _)| weight).sum());
        for (weight, one) in among {
            if at < *weight {
                return *one;
            }
            at -= weight;
        }
        among[0].1
    }
}
