//! Random numbers from a seed, so that a run can be repeated, and numbers that depend only on a text.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A number below 100 from a hash of `parts`: the same in every run and every thread.
pub(crate) fn hash_percent(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish() % 100
}

/// A random number generator.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    /// The generator number `stream` of a seed. Each `stream` gives an independent sequence.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(stream)))
    }
    /// A number from 0 to `end`, exclusive.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.u64(0..end.max(1))
    }
    /// True with a probability of `percent` / 100.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    /// A duration from `from` to `to` milliseconds, inclusive.
    pub(crate) fn duration_ms(&mut self, from: u64, to: u64) -> std::time::Duration {
        std::time::Duration::from_millis(from + self.below(to - from + 1))
    }
}
