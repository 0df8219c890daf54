//! Tokens that say themselves who shows them (RFC 7519), as access tokens (RFC 9068) and with the cautions of RFC 8725.

use std::{collections::HashSet, fmt, sync::Arc};

use jsonwebtoken::{Algorithm, Header, Validation};
use segue_engine::project::JwtDef;
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::{
    AuthError, Caller,
    jwks::{JwkSource, KeysUnavailable},
    ring_provider,
};
use crate::{clock::Clock, limits};

/// Checks tokens of one issuer.
pub(super) struct JwtValidator {
    def: JwtDef,
    algorithms: Vec<Algorithm>,
    keys: JwkSource,
}

impl JwtValidator {
    /// Of the project's rules.
    ///
    /// # Errors
    /// In words, for operators: an address or an algorithm is none.
    pub(super) fn new(def: &JwtDef) -> Result<Self, String> {
        ring_provider::install();
        let algorithm = |name: &String| name.parse().map_err(|_| format!("`{name}` is no algorithm of tokens"));
        Ok(Self {
            algorithms: def.algorithms.iter().map(algorithm).collect::<Result<_, _>>()?,
            keys: JwkSource::new(&def.keys)?,
            def: def.clone(),
        })
    }

    /// Who shows a token, if it is good.
    ///
    /// # Errors
    /// [`AuthError`].
    pub(super) async fn authenticate(&self, token: &str, clock: &Arc<dyn Clock>) -> Result<Caller, AuthError> {
        if token.len() > limits::JWT_TEXT {
            return Err(AuthError::InvalidToken("the token is too long"));
        }
        let head =
            jsonwebtoken::decode_header(token).map_err(|_| AuthError::InvalidToken("the token cannot be read"))?;
        self.accepts(&head)?;
        let keys = self.keys.of(&head, clock).await.map_err(|KeysUnavailable| AuthError::Unavailable)?;
        if keys.is_empty() {
            return Err(AuthError::InvalidToken("nobody knows the key of the token"));
        }
        // The signature alone: time is ours to tell, and the other claims are compared more strictly below.
        let mut signature = Validation::new(head.alg);
        (signature.validate_exp, signature.validate_nbf, signature.validate_aud) = (false, false, false);
        signature.required_spec_claims = HashSet::new();
        let claims = keys.iter().find_map(|key| jsonwebtoken::decode::<Map<String, Json>>(token, key, &signature).ok());
        let claims = claims.ok_or(AuthError::InvalidToken("the signature does not fit"))?.claims;
        self.admits(&claims, clock.now().as_micros())
    }

    /// What can be said before a key is looked for.
    fn accepts(&self, head: &Header) -> Result<(), AuthError> {
        if !self.algorithms.contains(&head.alg) {
            return Err(AuthError::InvalidToken("tokens of this algorithm are not taken"));
        }
        if head.crit.is_some() {
            return Err(AuthError::InvalidToken("the token wants something that is not known here"));
        }
        // Tokens for other ends, such as logouts, say so (RFC 8725, 3.11).
        let kind = head.typ.as_deref().unwrap_or("JWT").to_ascii_lowercase();
        match kind.strip_prefix("application/").unwrap_or(&kind) {
            "jwt" | "at+jwt" => Ok(()),
            _ => Err(AuthError::InvalidToken("the token is not made for this use")),
        }
    }

    fn admits(&self, claims: &Map<String, Json>, now: i64) -> Result<Caller, AuthError> {
        let text = |key: &str| claims.get(key).and_then(Json::as_str);
        if text("iss") != Some(&self.def.issuer) {
            return Err(AuthError::InvalidToken("the token is of another issuer"));
        }
        if !texts(claims.get("aud")).any(|one| self.def.audiences.iter().any(|own| own == one)) {
            return Err(AuthError::InvalidToken("the token is for another audience"));
        }
        let (now, leeway) = (now as f64 / 1e6, self.def.leeway.as_secs_f64());
        let ends = claims.get("exp").and_then(Json::as_f64).ok_or(AuthError::InvalidToken("the token has no end"))?;
        if now >= ends + leeway {
            return Err(AuthError::InvalidToken("the token has run out"));
        }
        if let Some(begins) = claims.get("nbf") {
            let begins = begins.as_f64().ok_or(AuthError::InvalidToken("the token cannot be read"))?;
            if now + leeway < begins {
                return Err(AuthError::InvalidToken("the token is not good yet"));
            }
        }
        let rights: HashSet<&str> =
            texts(claims.get("scope")).chain(texts(claims.get("scp"))).flat_map(str::split_ascii_whitespace).collect();
        if !self.def.scopes.iter().all(|wanted| rights.contains(wanted.as_str())) {
            return Err(AuthError::InsufficientScope(self.def.scopes.join(" ")));
        }
        let names = |key: &str| text(key).filter(|name| !name.is_empty());
        let subject = names("sub").or_else(|| names("client_id")).or_else(|| names("azp"));
        let subject = subject.ok_or(AuthError::InvalidToken("the token names nobody"))?;
        Ok(Caller { id: Some(caller_id(&self.def.issuer, subject).into()) })
    }
}

/// One text, or a list of texts.
fn texts(claim: Option<&Json>) -> impl Iterator<Item = &str> {
    let one = claim.and_then(Json::as_str);
    let many = claim.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    one.into_iter().chain(many)
}

/// What tells one caller from another, and says nothing else about them.
fn caller_id(issuer: &str, subject: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(issuer.as_bytes());
    hash.update([0]);
    hash.update(subject.as_bytes());
    hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Debug for JwtValidator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtValidator").field("issuer", &self.def.issuer).finish_non_exhaustive()
    }
}
