//! Numbers by chance from a seed, so that a run can be repeated, and choices that depend on a text alone.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A number below 100 that depends on `parts` alone: the same in every run and in every thread.
pub(crate) fn percent(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish() % 100
}

/// Numbers by chance.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    /// The sequence number `stream` of a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(stream)))
    }
    /// A number of `range`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.u64(0..end.max(1))
    }
    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    /// A duration between two numbers of milliseconds.
    pub(crate) fn millis(&mut self, from: u64, to: u64) -> std::time::Duration {
        std::time::Duration::from_millis(from + self.below(to - from + 1))
    }
}
