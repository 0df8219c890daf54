//! A hash whose values are stored with conversations: what a step of a flow can still do, and what an action has read.
//!
//! FNV-1a with 32 bits. It must stay as it is: with another one every flow under way would count as changed after an update, and
//! corrections would run actions again. Nothing about security depends on it.

use serde_json::Value as Json;

/// A hash that grows with what is added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StableHash(u32);

impl StableHash {
    /// The hash of nothing.
    pub(crate) fn new() -> Self {
        Self(0x811c_9dc5)
    }
    /// Goes on from a hash that was made before.
    pub(crate) fn from_value(hash: u32) -> Self {
        Self(hash)
    }
    /// Adds a text with its end.
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
    /// The hash.
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
    fn stored_hashes_stay_comparable() {
        assert_eq!(StableHash::new().value(), 0x811c_9dc5);
        assert_eq!(StableHash::new().bytes(b"foobar").value(), 0xbf9c_f968, "the published value of FNV-1a");
        let parts = StableHash::new().text("collect").number(7).json(&Json::from("x"));
        assert_eq!(parts.value(), StableHash::new().bytes(b"collect\xff\x07\0\0\0\"x\"\xff").value());
    }
}
