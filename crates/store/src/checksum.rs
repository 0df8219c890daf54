//! Checksums of stored rows: they detect rows that changed by accident or are in the wrong place. They do not protect
//! against deliberate forgery.

/// A 64-bit checksum over steps of eight bytes. Each step is invertible (exclusive or, multiplication by an odd number,
/// a folded shift), so a change within one step always changes the sum; other changes are missed with a probability of
/// 2^-64.
///
/// It is stored in rows, and as the deduplication hash: the algorithm must not change.
#[derive(Clone, Copy)]
pub(super) struct Checksum(u64);

impl Checksum {
    /// Starts a checksum of data that belongs to `owner`.
    pub(super) fn new(owner: &str) -> Self {
        // The offset basis of FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv/>).
        Self(0xcbf2_9ce4_8422_2325).bytes(owner.as_bytes())
    }

    /// Adds a number.
    pub(super) fn number(self, number: u64) -> Self {
        // The factor is the 64-bit prime of the FNV-1a hash.
        let mixed = (self.0 ^ number).wrapping_mul(0x0000_0100_0000_01b3);
        Self(mixed ^ (mixed >> 29))
    }

    /// Adds bytes and their length.
    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let sum = words.iter().fold(self, |sum, word| sum.number(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        sum.number(u64::from_le_bytes(last)).number(bytes.len() as u64)
    }

    /// Adds a text and its length.
    pub(super) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    pub(super) fn finish(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use proptest::prelude::*;

    use super::*;

    fn checksum(owner: &str, number: u64, body: &[u8]) -> u64 {
        Checksum::new(owner).number(number).bytes(body).finish()
    }

    /// Stored rows and deduplication hashes depend on it.
    #[test]
    fn the_algorithm_is_stable() {
        assert_eq!(checksum("", 0, b""), 0x3723_c97e_49fc_7512);
        assert_eq!(checksum("anna", 7, b"[{\"event\":\"user\"}]"), 0xd46a_f84e_6146_7c4c);
    }

    proptest! {
        #[test]
        fn detects_changed_bytes_moved_rows_and_other_owners(
            body in proptest::collection::vec(any::<u8>(), 1..64),
            at in any::<prop::sample::Index>(),
            bits in 1..=u8::MAX,
        ) {
            let sum = checksum("c", 1, &body);
            let mut changed = body.clone();
            changed[at.index(body.len())] ^= bits;
            prop_assert_ne!(checksum("c", 1, &changed), sum);
            prop_assert_ne!(checksum("c", 2, &body), sum);
            prop_assert_ne!(checksum("d", 1, &body), sum);
            prop_assert_ne!(checksum("c", 1, &body[1..]), sum);
        }
    }
}
