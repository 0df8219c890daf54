//! A fixed bearer token, and its comparison with the `Authorization` header.

use std::fmt;

use axum::http::{HeaderMap, header::AUTHORIZATION};
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

    /// Whether the first `Authorization` header of a request contains this token. Digests are compared, so that the time does not
    /// reveal at which character a wrong token differs.
    pub fn matches(&self, headers: &HeaderMap) -> bool {
        let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let Some((scheme, token)) = value.split_once(' ') else { return false };
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
    fn only_a_bearer_header_with_the_same_token_matches() {
        assert!(BearerToken::new("  ").is_none());
        let bearer = BearerToken::new("s3cret").unwrap();
        assert!(!bearer.matches(&HeaderMap::new()));
        for (value, expected) in
            [("Bearer s3cret", true), ("bearer  s3cret", true), ("Basic s3cret", false), ("Bearer s3cre", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            assert_eq!(bearer.matches(&headers), expected, "{value}");
        }
        assert_eq!(format!("{bearer:?}"), "BearerToken(…)");
    }
}
