//! Derives seeds.

use sha2::{Digest, Sha256};

/// The first eight bytes of the SHA-256 hash of a text, big-endian.
pub(super) fn from_text(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// The `n`th number of the splitmix64 generator with this seed (Sebastiano Vigna, public domain: <https://prng.di.unimi.it/splitmix64.c>).
pub(super) fn nth(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
