//! A fixed bearer token.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::secret::Secret;

/// The token that callers must send as `Authorization: Bearer <token>`. `Debug` does not print it.
#[derive(Clone)]
pub struct BearerToken(Secret);

impl BearerToken {
    /// A token without surrounding white space; `None` if it is empty.
    pub fn new(token: &str) -> Option<Self> {
        let token = token.trim();
        (!token.is_empty()).then(|| Self(Secret::new(token)))
    }

    /// Whether a caller's token is this token. Digests are compared, so that the time does not reveal at which character a wrong token
    /// differs.
    pub fn matches(&self, token: &str) -> bool {
        Sha256::digest(token.as_bytes()) == Sha256::digest(self.0.expose().as_bytes())
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_the_same_token_matches_and_debug_does_not_print_it() {
        assert!(BearerToken::new("  ").is_none());
        let token = BearerToken::new(" s3cret ").unwrap();
        assert!(token.matches("s3cret") && !token.matches("s3cre") && !token.matches("s3cretx") && !token.matches(""));
        assert_eq!(format!("{token:?}"), "BearerToken(…)");
    }
}
