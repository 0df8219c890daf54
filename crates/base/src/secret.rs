//! Secret values, which are never printed.

use std::fmt;

use zeroize::Zeroize;

/// A secret string. It has no `Display` and no `Serialize`, its `Debug` output does not contain it, and it is zeroed when dropped.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// A secret with this value.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
    /// The value itself. Use it only where it is sent.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
