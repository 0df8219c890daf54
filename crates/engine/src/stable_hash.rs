//! A hash whose values are stored with conversations: what can still happen from a step on, and the inputs of an
//! action.
//!
//! FNV-1a with 32 bits (<http://www.isthe.com/chongo/tech/comp/fnv/>). The algorithm must not change: with another one
//! every active flow would count as changed after an update, and corrections would run actions again. It is not a
//! security measure.

use serde_json::Value as Json;

/// An incremental hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StableHash(u32);

impl StableHash {
    /// The hash of no input: the FNV offset basis.
    pub(crate) fn new() -> Self {
        Self(0x811c_9dc5)
    }
    /// Continues from a hash that was computed before.
    pub(crate) fn from_value(hash: u32) -> Self {
        Self(hash)
    }
    /// Adds a text and a terminator.
    pub(crate) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes()).bytes(&[0xff])
    }
    /// Adds a number.
    pub(crate) fn number(self, number: u32) -> Self {
        self.bytes(&number.to_le_bytes())
    }
    /// Adds a JSON value.
    pub(crate) fn json(self, value: &Json) -> Self {
        self.text(&value.to_string())
    }
    /// The current value of the hash.
    pub(crate) fn value(self) -> u32 {
        self.0
    }
    fn bytes(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_values_are_stable() {
        assert_eq!(StableHash::new().value(), 0x811c_9dc5);
        assert_eq!(StableHash::new().bytes(b"foobar").value(), 0xbf9c_f968, "the published FNV-1a value");
        let parts = StableHash::new().text("collect").number(7).json(&Json::from("x"));
        assert_eq!(parts.value(), StableHash::new().bytes(b"collect\xff\x07\0\0\0\"x\"\xff").value());
    }
}
