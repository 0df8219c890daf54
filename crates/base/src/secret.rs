//! Values that must not be printed.

use std::fmt;

use zeroize::Zeroize;

/// A secret text. It has no `Display`, no `Serialize`; its `Debug` shows nothing; it is wiped when dropped.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Takes a text as a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
    /// The text itself, for the one call that needs it.
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
