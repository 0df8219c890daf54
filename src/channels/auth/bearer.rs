//! One place for tokens in the `Authorization` header.

use std::fmt;

use axum::http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};

use crate::secret::Secret;

/// A token that a caller must show as `Authorization: Bearer <token>`.
#[derive(Clone)]
pub struct BearerToken(Secret);

impl BearerToken {
    /// A token; `None` for an empty one, which would let everybody in.
    pub fn new(token: &str) -> Option<Self> {
        let token = token.trim();
        (!token.is_empty()).then(|| Self(Secret::new(token)))
    }

    /// Whether the request shows it. Takes the same time for every wrong token of one length: digests are compared, so
    /// where two tokens begin to differ cannot be measured.
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let Some((scheme, token)) = given.split_once(' ') else { return false };
        let digest = |text: &str| Sha256::digest(text.as_bytes());
        scheme.eq_ignore_ascii_case("bearer") && digest(token.trim()) == digest(self.0.expose())
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

    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_the_token_itself_admits() {
        assert!(BearerToken::new("  ").is_none());
        let bearer = BearerToken::new("s3cret").unwrap();
        assert!(!bearer.admits(&HeaderMap::new()));
        for (given, admits) in
            [("Bearer s3cret", true), ("bearer  s3cret", true), ("Basic s3cret", false), ("Bearer s3cre", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(given));
            assert_eq!(bearer.admits(&headers), admits, "{given}");
        }
        assert_eq!(format!("{bearer:?}"), "BearerToken(…)");
    }
}
