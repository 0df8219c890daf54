//! Validation of JWTs (RFC 7519) as access tokens (RFC 9068), following the best current practices of RFC 8725.

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

/// Validates the JWTs of one issuer.
pub(super) struct JwtValidator {
    def: JwtDef,
    algorithms: Vec<Algorithm>,
    keys: JwkSource,
}

impl JwtValidator {
    /// A validator with the definition of the project.
    ///
    /// # Errors
    /// An algorithm, a key set or a URL is invalid; the message is for operators.
    pub(super) fn new(def: &JwtDef) -> Result<Self, String> {
        ring_provider::install();
        let algorithm = |name: &String| name.parse().map_err(|_| format!("`{name}` is not a JWT algorithm"));
        Ok(Self {
            algorithms: def.algorithms.iter().map(algorithm).collect::<Result<_, _>>()?,
            keys: JwkSource::new(&def.keys)?,
            def: def.clone(),
        })
    }

    /// Validates a token: the caller that it identifies.
    ///
    /// # Errors
    /// [`AuthError`] if the token is invalid, lacks a scope, or cannot be verified at present.
    pub(super) async fn authenticate(&self, token: &str, clock: &Arc<dyn Clock>) -> Result<Caller, AuthError> {
        if token.len() > limits::JWT_TEXT {
            return Err(AuthError::InvalidToken("the token is too long"));
        }
        let header =
            jsonwebtoken::decode_header(token).map_err(|_| AuthError::InvalidToken("the token is malformed"))?;
        self.validate_header(&header)?;
        let keys = self.keys.keys_for(&header, clock).await.map_err(|KeysUnavailable| AuthError::Unavailable)?;
        if keys.is_empty() {
            return Err(AuthError::InvalidToken("the key of the token is unknown"));
        }
        // Only the signature is verified here. `validate_claims` checks the claims: with our clock, and more strictly.
        let mut signature = Validation::new(header.alg);
        (signature.validate_exp, signature.validate_nbf, signature.validate_aud) = (false, false, false);
        signature.required_spec_claims = HashSet::new();
        let claims = keys.iter().find_map(|key| jsonwebtoken::decode::<Map<String, Json>>(token, key, &signature).ok());
        let claims = claims.ok_or(AuthError::InvalidToken("the signature is invalid"))?.claims;
        self.validate_claims(&claims, clock.now().as_micros())
    }

    /// Checks the header, before a key is looked up.
    fn validate_header(&self, header: &Header) -> Result<(), AuthError> {
        if !self.algorithms.contains(&header.alg) {
            return Err(AuthError::InvalidToken("tokens with this algorithm are not accepted"));
        }
        if header.crit.is_some() {
            return Err(AuthError::InvalidToken("the token requires an unsupported extension"));
        }
        // Explicit typing (RFC 8725, section 3.11): tokens for other purposes, such as logout tokens, have another `typ`.
        let kind = header.typ.as_deref().unwrap_or("JWT").to_ascii_lowercase();
        match kind.strip_prefix("application/").unwrap_or(&kind) {
            "jwt" | "at+jwt" => Ok(()),
            _ => Err(AuthError::InvalidToken("the token has another type")),
        }
    }

    /// Checks the claims at the time `now`, in microseconds since 1970.
    fn validate_claims(&self, claims: &Map<String, Json>, now: i64) -> Result<Caller, AuthError> {
        let text = |key: &str| claims.get(key).and_then(Json::as_str);
        if let Some(required) = &self.def.claims {
            if text("iss") != Some(&required.issuer) {
                return Err(AuthError::InvalidToken("the token has another issuer"));
            }
            if !texts(claims.get("aud")).any(|one| required.audiences.iter().any(|own| own == one)) {
                return Err(AuthError::InvalidToken("the token has another audience"));
            }
        }
        let (now, leeway) = (now as f64 / 1e6, self.def.leeway.as_secs_f64());
        // Tokens for Rasa servers need none.
        let expires = match claims.get("exp") {
            None if self.def.claims.is_none() => f64::INFINITY,
            expires => expires.and_then(Json::as_f64).ok_or(AuthError::InvalidToken("the token has no expiry time"))?,
        };
        if now >= expires + leeway {
            return Err(AuthError::InvalidToken("the token has expired"));
        }
        if let Some(not_before) = claims.get("nbf") {
            let not_before = not_before.as_f64().ok_or(AuthError::InvalidToken("the token is malformed"))?;
            if now + leeway < not_before {
                return Err(AuthError::InvalidToken("the token is not valid yet"));
            }
        }
        let scopes: HashSet<&str> =
            texts(claims.get("scope")).chain(texts(claims.get("scp"))).flat_map(str::split_ascii_whitespace).collect();
        if !self.def.scopes.iter().all(|required| scopes.contains(required.as_str())) {
            return Err(AuthError::InsufficientScope(self.def.scopes.join(" ")));
        }
        let non_empty = |key: &str| text(key).filter(|name| !name.is_empty());
        let subject = non_empty("sub").or_else(|| non_empty("client_id")).or_else(|| non_empty("azp"));
        let issuer = self.def.claims.as_ref().map_or("", |required| &required.issuer);
        match subject {
            Some(subject) => Ok(Caller { id: Some(caller_id(issuer, subject).into()) }),
            // Such a token says that its bearer may connect, not who it is.
            None if self.def.claims.is_none() => Ok(Caller::default()),
            None => Err(AuthError::InvalidToken("the token has no subject")),
        }
    }
}

/// The strings of a claim that is one string or a list of strings.
fn texts(claim: Option<&Json>) -> impl Iterator<Item = &str> {
    let one = claim.and_then(Json::as_str);
    let many = claim.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    one.into_iter().chain(many)
}

/// The id of a caller: 24 hexadecimal digits of a hash of issuer and subject.
fn caller_id(issuer: &str, subject: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(issuer.as_bytes());
    hash.update([0]);
    hash.update(subject.as_bytes());
    hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Debug for JwtValidator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtValidator").field("def", &self.def).finish_non_exhaustive()
    }
}
